"""Decisions that are written later are told later: what anybody has heard of is on disk, whenever the crash comes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rpc_site import until
from tests.virtual import BACKENDS
from tsched import Group, Job, JournalError, Scheduler
from tsched.backends import Order
from tsched.backends.fake import FakeBackend
from tsched.errors import JournalStalled
from tsched.events import Woke
from tsched.group_commit import RETRY_S, GroupCommit
from tsched.journal import Header, MemoryJournal, Record, SqliteJournal
from tsched.lease import Lease
from tsched.movers import NoBackend

HEADER = Header((Group("g"),))
PATIENCE_S = 30.0
pytestmark = pytest.mark.anyio
on_every_loop = pytest.mark.parametrize("backend", BACKENDS)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Gated(MemoryJournal):
    """In memory, and every commit waits for a permit; `full` makes it fail as a full disk does."""

    def __init__(self, permits: int = 0) -> None:
        super().__init__()
        self.permits = threading.Semaphore(permits)
        self.commits: list[int] = []
        self.full = False

    def append_all(self, records: list[Record]) -> None:
        if self.full:
            raise JournalStalled("the disk is full")
        self.permits.acquire()
        self.records.extend(records)
        self.commits.append(len(records))


class Foreign(MemoryJournal):
    def append_all(self, records: list[Record]) -> None:
        raise JournalError("somebody else writes to this log")


def records(count: int, first: int = 0) -> list[Record]:
    return [Record(seq, seq, Woke()) for seq in range(first, first + count)]


def run(backend: str, main: Callable[[], Awaitable[None]]) -> None:
    anyio.run(main, backend=backend)


# ------------------------------------------------------------------------------------------------ the journal


@on_every_loop
def test_what_comes_during_a_commit_goes_into_the_next_one(backend: str) -> None:
    async def main() -> None:
        inner = Gated()
        log = GroupCommit(inner)
        log.begin(HEADER)
        for record in records(1):
            log.append(record)
        await until(lambda: log._writing is not None, "the first commit has begun")
        for record in records(7, first=1):
            log.append(record)
        inner.permits.release(2)
        await log.durable()
        assert inner.records == records(8)
        assert inner.commits == [1, 7]
        log.close()

    run(backend, main)


@on_every_loop
def test_nothing_is_durable_before_it_is_written(backend: str) -> None:
    async def main() -> None:
        inner = Gated()
        log = GroupCommit(inner)
        log.begin(HEADER)
        await log.durable()  # of nothing
        log.append(records(1)[0])
        with anyio.move_on_after(0.05) as scope:
            await log.durable()
        assert scope.cancelled_caught
        inner.permits.release()
        await log.durable()
        assert inner.records == records(1)
        log.close()

    run(backend, main)


def test_a_full_disk_is_tried_again_until_there_is_room(tmp_path: Path) -> None:
    async def main() -> None:
        inner = SqliteJournal(tmp_path / "log.db")
        log = GroupCommit(inner)
        log.begin(HEADER)
        (pages,) = inner._db.execute("PRAGMA page_count").fetchone()
        inner._db.execute(f"PRAGMA max_page_count = {pages + 1}")
        for record in records(500):
            log.append(record)
        await until(lambda: "full" in log.stalled, "the disk is full")
        inner._db.execute("PRAGMA max_page_count = 1000000")
        with anyio.fail_after(PATIENCE_S):
            await log.durable()
        assert not log.stalled
        found = log.load()
        assert found is not None
        assert list(found.records) == records(500)
        log.close()

    anyio.run(main)


def test_a_log_that_somebody_else_writes_fails_for_good(tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "log.db"
        log, other = GroupCommit(SqliteJournal(path)), SqliteJournal(path)
        log.begin(HEADER)
        other.append(records(1)[0])
        log.append(records(1)[0])
        with pytest.raises(JournalError, match="somebody else writes"):
            await log.durable()
        with pytest.raises(JournalError, match="somebody else writes"):
            log.append(records(1, first=1)[0])
        log.close()
        other.close()

    anyio.run(main)


def test_closing_writes_what_is_left(tmp_path: Path) -> None:
    log = GroupCommit(SqliteJournal(tmp_path / "log.db"))
    log.begin(HEADER)
    for record in records(100):
        log.append(record)
    log.save_snapshot(99, {"state": 1})
    log.close()
    again = SqliteJournal(tmp_path / "log.db")
    found = again.load()
    assert found is not None
    assert (found.snapshot, found.snapshot_seq, found.records) == ({"state": 1}, 99, ())
    again.close()


def test_closing_does_not_wait_for_ever_for_a_full_disk() -> None:
    inner = Gated()
    inner.full = True
    log = GroupCommit(inner)
    log.begin(HEADER)
    log.append(records(1)[0])
    log.close()
    assert inner.records == []


# ---------------------------------------------------------------------------------------------- the scheduler


class Watched(NoBackend):
    """Says which moves it was asked for."""

    def __init__(self) -> None:
        self.asked: list[Order] = []

    async def park(self, order: Order) -> None:
        self.asked.append(order)


async def test_a_grant_is_told_once_it_is_on_disk_and_given_back_when_its_client_has_left() -> None:
    inner = Gated(permits=2)
    log = GroupCommit(inner)
    async with Scheduler([Group("g")], journal=log) as scheduler:
        await scheduler.add_job(Job("a"))
        await scheduler.add_job(Job("b"))
        waiting = asyncio.ensure_future(scheduler.acquire("a", "g", client="a", request=1))
        await until(lambda: scheduler.status().groups["g"].holder is not None, "the grant is decided")
        await asyncio.sleep(0.02)
        assert not waiting.done()
        waiting.cancel()
        await asyncio.wait({waiting})
        assert scheduler.status().groups["g"].holder is None
        inner.permits.release(100)
        assert (await scheduler.acquire("b", "g")).held
    log.close()


async def test_a_move_begins_once_what_ordered_it_is_on_disk() -> None:
    inner, backend = Gated(permits=100), Watched()
    log = GroupCommit(inner)
    async with Scheduler([Group("g", capacity_bytes=1)], backend=backend, journal=log) as scheduler:
        for name in "ab":
            await scheduler.add_job(Job(name, state_bytes={"g": 1}))
        await (await scheduler.acquire("a", "g")).release()
        while inner.permits.acquire(blocking=False):
            pass
        waiting = asyncio.ensure_future(scheduler.acquire("b", "g"))
        await until(lambda: scheduler.status().groups["g"].waiters != (), "the request is in line")
        await asyncio.sleep(0.02)
        assert not backend.asked
        inner.permits.release(100)
        await waiting
        assert [order.job for order in backend.asked] == ["a"]
    log.close()


async def test_while_the_disk_is_full_nothing_new_is_taken_and_nobody_loses_a_turn() -> None:
    inner = Gated(permits=10_000)
    log = GroupCommit(inner)
    async with Scheduler([Group("g"), Group("h")], journal=log) as scheduler:
        await scheduler.add_job(Job("a"))
        lease = await scheduler.acquire("a", "g", ttl_s=2 * RETRY_S)
        inner.full = True
        stuck = asyncio.ensure_future(scheduler.acquire("a", "h"))
        await until(lambda: bool(scheduler.stalled), "the log stalls")
        with pytest.raises(JournalStalled, match="nothing new is taken: the disk is full"):
            await scheduler.acquire("a", "h")
        for _ in range(4):
            await asyncio.sleep(RETRY_S)
            await lease.renew()
        assert not stuck.done()
        inner.full = False
        assert (await stuck).held
        assert lease.held
    log.close()


async def test_a_log_that_is_lost_ends_the_scheduler_and_tells_who_waits() -> None:
    log = GroupCommit(Foreign())

    async def body() -> None:
        async with Scheduler([Group("g")], journal=log) as scheduler:
            with pytest.raises(JournalError, match="somebody else"):
                await scheduler.add_job(Job("a"))
            await anyio.sleep_forever()

    with pytest.raises(JournalError, match="somebody else"):
        await body()
    log.close()


@given(st.data())
def test_killed_at_any_moment_whatever_a_client_has_heard_of_is_in_the_log(data: st.DataObject) -> None:
    """Clients come, wait, hold, leave and are cancelled, commits come late; then the process dies, with its thread."""
    told: dict[int, Lease] = {}
    ended: set[int] = set()
    numbers = count(1)

    async def client(scheduler: Scheduler, job: str, groups: tuple[str, ...], work: int, patience: int | None) -> None:
        with anyio.move_on_after(None if patience is None else patience / 1000):
            lease = await scheduler.acquire(job, groups, client=job, request=next(numbers))
            told[lease.id] = lease
            try:
                await anyio.sleep(work / 1000)
            finally:
                ended.add(lease.id)
                await lease.release()

    plans = data.draw(
        st.lists(
            st.tuples(
                st.sampled_from(["a", "b", "c"]),
                st.sampled_from([("g",), ("h",), ("g", "h")]),
                st.integers(0, 3),
                st.none() | st.integers(0, 4),
            ),
            min_size=1,
            max_size=6,
        )
    )
    commits = data.draw(st.integers(1, 12))
    inner = Gated(permits=3)
    groups = [Group("g", capacity_bytes=2), Group("h")]

    async def first_life() -> None:
        async with Scheduler(groups, backend=FakeBackend(), journal=log) as scheduler:
            for name in "abc":
                await scheduler.add_job(Job(name, state_bytes={"g": 2}))
            tasks = [asyncio.ensure_future(client(scheduler, *plan)) for plan in plans]
            inner.permits.release(commits)
            await asyncio.wait(tasks, timeout=0.02)
            # Here the process dies: what comes later, of this test's own tidying up, is not looked at.
            heard.update(told)
            gone.update(ended)
            seen.extend(inner.records)
            inner.permits.release(1_000)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def second_life(kept: MemoryJournal) -> None:
        async with Scheduler(groups, journal=kept) as scheduler:
            for number in heard.keys() - gone:
                assert scheduler.client_of(number) == heard[number].client

    seen: list[Record] = []
    heard: dict[int, Lease] = {}
    gone: set[int] = set()
    log = GroupCommit(inner)
    asyncio.run(first_life())
    kept = MemoryJournal()
    kept.begin(inner.header or HEADER)
    kept.records.extend(seen)
    asyncio.run(second_life(kept))
