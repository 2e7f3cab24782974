"""Killed at any event and started again from its log: the same leases, the same line, the same residency."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.virtual import BACKENDS, run
from tsched import Group, Job, JournalError, LeaseLost, Scheduler
from tsched.backends.fake import FakeBackend
from tsched.costs import FixedTable
from tsched.events import Restarted
from tsched.faults import FaultRates, Faults
from tsched.journal import Header, JsonlJournal, MemoryJournal, Record, Recovered, SqliteJournal
from tsched.status import Status

GROUPS = [Group("g", capacity_bytes=2, move_timeout_us=5_000_000), Group("h", nodes=("n0", "n1"), retries=3)]
NODES = {group.name: group.nodes for group in GROUPS}
JOBS = ("a", "b", "c")
Turns = list[tuple[str, ...]]


class Crash(Exception):
    """The process dies."""


class Dying:
    """A journal whose process dies at record `at`: before it is written, or after, but before anything is done."""

    def __init__(self, inner: SqliteJournal, at: int, written: bool) -> None:
        self._inner, self._at, self._written = inner, at, written
        self.seen: Status | None = None
        self.look: Callable[[], Status] | None = None

    def begin(self, header: Header) -> None:
        self._inner.begin(header)

    def append(self, record: Record) -> None:
        if record.seq >= self._at and not self._written:
            raise Crash
        self._inner.append(record)
        if self.look is not None:
            self.seen = self.look()
        if record.seq >= self._at:
            raise Crash

    def load(self) -> Recovered | None:
        return self._inner.load()

    def save_snapshot(self, seq: int, snapshot: dict[str, Any]) -> None:
        self._inner.save_snapshot(seq, snapshot)

    def close(self) -> None:
        self._inner.close()


def essence(status: Status) -> dict[str, Any]:
    """What must survive: leases with their tokens, the line in order, and where every state is."""
    return {
        name: (
            (group.holder.lease, group.holder.job, group.holder.token) if group.holder else None,
            [(waiting.client, waiting.request) for waiting in group.waiters],
            sorted((place.job, place.standing) for place in group.places),
        )
        for name, group in status.groups.items()
    }


class Client:
    """Asks for its turns one after another, under names that survive: (client, number)."""

    def __init__(self, job: str, turns: list[tuple[str, ...]], backend: FakeBackend) -> None:
        self.job, self.turns, self.backend = job, turns, backend
        self.done = 0

    async def run(self, sched: Scheduler, computing: dict[str, str]) -> None:
        while self.done < len(self.turns):
            groups = self.turns[self.done]
            number = self.done + 1
            async with sched.hold(self.job, groups, client=f"client of {self.job}", request=number) as lease:
                for name in groups:
                    assert computing.setdefault(name, self.job) == self.job, f"{name} is {computing[name]}'s"
                    for node in NODES[name]:
                        presence = await self.backend.probe(name, node, self.job, deadline_us=0)
                        assert presence.parked_bytes == 0, "granted without its state"
                try:
                    await anyio.sleep(2)
                finally:
                    for name in groups:
                        del computing[name]
            assert not lease.held
            self.done = number


async def _live(sched: Scheduler, clients: list[Client]) -> None:
    computing: dict[str, str] = {}
    for name in JOBS:
        if name not in sched.jobs:
            await sched.add_job(Job(name, state_bytes={"g": 1}))
    async with anyio.create_task_group() as tasks:
        for client in clients:
            tasks.start_soon(client.run, sched, computing)


def _has_crash(error: BaseException) -> bool:
    return isinstance(error, Crash) or (
        isinstance(error, BaseExceptionGroup) and any(_has_crash(each) for each in error.exceptions)
    )


async def _crash_and_restart(turns: list[Turns], at: int, written: bool, every: int, late: bool) -> None:
    faults = Faults(at, FaultRates(late=0.3)) if late else None
    backend = FakeBackend(costs=FixedTable(default_us=1_500_000), faults=faults)
    clients = [Client(job, mine, backend) for job, mine in zip(JOBS, turns, strict=True)]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "log.db"
        journal = Dying(SqliteJournal(path), at, written)
        first = Scheduler(GROUPS, backend=backend, journal=journal, snapshot_every=every)
        journal.look = first.status
        try:
            async with first:
                await _live(first, clients)
        except BaseException as error:
            if not _has_crash(error):
                raise
        journal.close()
        again = SqliteJournal(path)
        try:
            async with Scheduler(GROUPS, backend=backend, journal=again, snapshot_every=every) as second:
                status = second.status()
                if journal.seen is not None:
                    assert essence(status) == essence(journal.seen)
                    assert status.now_s >= journal.seen.now_s
                for group in status.groups.values():
                    assert group.holder is None or not group.holder.attached
                    assert not any(waiting.attached for waiting in group.waiters)
                with anyio.fail_after(500):
                    await _live(second, clients)
            assert all(client.done == len(client.turns) for client in clients)
            for group in second.status().groups.values():
                assert group.holder is None
                assert not group.waiters
        finally:
            again.close()


TURNS = st.lists(st.sampled_from([("g",), ("h",), ("g", "h")]), min_size=1, max_size=3)


@given(
    turns=st.lists(TURNS, min_size=3, max_size=3),
    at=st.integers(0, 40),
    written=st.booleans(),
    every=st.sampled_from([1, 3, 1000]),
    late=st.booleans(),
)
def test_killed_at_any_event_it_goes_on_as_it_was(
    turns: list[Turns], at: int, written: bool, every: int, late: bool
) -> None:
    run("asyncio", lambda: _crash_and_restart(turns, at, written, every, late))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("at", range(0, 24, 3))
def test_killed_under_either_event_loop(backend: str, at: int) -> None:
    turns: list[Turns] = [[("g",), ("h",)], [("h",), ("g",)], [("g", "h")]]
    run(backend, lambda: _crash_and_restart(turns, at, True, 1000, False))


@pytest.mark.parametrize("kind", [SqliteJournal, JsonlJournal])
def test_a_lease_that_nobody_comes_back_for_ends(tmp_path: Path, kind: Any) -> None:
    async def main() -> None:
        journal = kind(tmp_path / "log")
        async with Scheduler([Group("g")], journal=journal) as sched:
            for name in "ab":
                await sched.add_job(Job(name))
            lease = await sched.acquire("a", "g")
        journal.close()
        journal = kind(tmp_path / "log")
        async with Scheduler([Group("g")], journal=journal, reattach_s=30) as sched:
            holder = sched.status().groups["g"].holder
            assert holder is not None
            assert (holder.lease, holder.token, holder.attached) == (lease.id, lease.token, False)
            before = sched.status().now_s
            async with sched.hold("b", "g") as mine:
                assert 30 <= sched.status().now_s - before < 31
                assert mine.token > lease.token
        journal.close()

    run("asyncio", main)


def test_who_comes_back_in_time_has_its_lease_and_deadlines_are_longer_by_the_downtime() -> None:
    async def main() -> None:
        journal = MemoryJournal()
        group = Group("g", lease_ttl_us=10_000_000)
        async with Scheduler([group], journal=journal) as sched:
            await sched.add_job(Job("a"))
            lease = await sched.acquire("a", "g", client="c", request=1)
            await anyio.sleep(9)
        await anyio.sleep(1000)
        async with Scheduler([group], journal=journal) as sched:
            assert sched.status().now_s < 10
            same = await sched.acquire("a", "g", client="c", request=1)
            assert (same.id, same.token) == (lease.id, lease.token)
            await anyio.sleep(9)
            await same.renew()
            await same.release()
            with pytest.raises(LeaseLost):
                await sched.release(lease.id)

    run("asyncio", main)


def test_jobs_of_the_log_may_be_added_again_once() -> None:
    async def main() -> None:
        journal = MemoryJournal()
        async with Scheduler([Group("g")], journal=journal) as sched:
            await sched.add_job(Job("a"))
        async with Scheduler([Group("g")], journal=journal) as sched:
            await sched.add_job(Job("a", weight=3))
            assert sched.jobs["a"].weight == 3
            with pytest.raises(ValueError, match="registered already"):
                await sched.add_job(Job("a"))

    run("asyncio", main)


def test_a_log_of_other_groups_is_refused() -> None:
    async def main() -> None:
        journal = MemoryJournal()
        async with Scheduler([Group("g"), Group("h", nodes=("x", "y"))], journal=journal) as sched:
            await sched.add_job(Job("a"))
        for groups, words in (
            ([Group("g")], "'h', which is not configured"),
            ([Group("g"), Group("h")], "with nodes x, y"),
        ):
            with pytest.raises(JournalError, match=words):
                await Scheduler(groups, journal=journal).__aenter__()

    run("asyncio", main)


def test_a_start_says_restarted_only_where_there_was_a_log() -> None:
    async def main() -> None:
        journal = MemoryJournal()
        for _ in range(2):
            async with Scheduler([Group("g")], journal=journal):
                pass
        assert [record.event for record in journal.records] == [Restarted()]

    run("asyncio", main)
