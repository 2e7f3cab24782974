"""How a scheduler writes, ends, fails and is watched, under asyncio and trio, in virtual time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
from anyio.abc import TaskGroup

import tsched
from tests.virtual import BACKENDS, run, settle
from tsched import Group, Job, Scheduler
from tsched.backends import Order
from tsched.backends.fake import FakeBackend
from tsched.commands import Park
from tsched.costs import FixedTable
from tsched.journal import MemoryJournal, Record

Main = Callable[[Callable[[], Awaitable[None]]], None]


@pytest.fixture(params=BACKENDS)
def virtual(request: pytest.FixtureRequest) -> Main:
    def runner(main: Callable[[], Awaitable[None]]) -> None:
        run(request.param, main)

    return runner


async def _turn(sched: Scheduler, job: str, length_s: float) -> None:
    async with sched.hold(job, "g"):
        await anyio.sleep(length_s)


def test_what_is_decided_is_written_before_it_is_done(virtual: Main) -> None:
    async def main() -> None:
        journal = MemoryJournal()
        written: list[bool] = []

        class Watcher(FakeBackend):
            async def park(self, order: Any) -> None:
                commands = [command for record in journal.records for command in record.commands]
                written.append(any(isinstance(command, Park) and command.op == order.op for command in commands))
                await super().park(order)

        async with Scheduler([Group("g")], backend=Watcher(), journal=journal) as sched:
            for name in "ab":
                await sched.add_job(Job(name))
            await _turn(sched, "a", 1)
            await _turn(sched, "b", 1)
        assert written == [True]

    virtual(main)


class FullDisk(MemoryJournal):
    """Fails to write the n-th record."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.append = self._append
        self._after = after

    def _append(self, record: Record) -> None:
        if len(self.records) >= self._after:
            raise tsched.JournalError("the disk is full")
        self.records.append(record)


def test_a_journal_that_cannot_be_written_stops_everything_and_nothing_is_done(virtual: Main) -> None:
    async def main() -> None:
        errors: list[BaseException] = []
        leases: list[object] = []
        outcome = "running"

        async def wait() -> None:
            try:
                leases.append(await sched.acquire("b", "g"))
            except BaseException as error:
                errors.append(error)
                raise

        async def serve() -> None:
            nonlocal outcome
            async with sched:
                for name in "ab":
                    await sched.add_job(Job(name, state_bytes={"g": 1}))
                lease = await sched.acquire("a", "g")
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(wait)
                    await settle()
                    try:
                        await sched.release(lease)
                    except tsched.JournalError:
                        outcome = "told"
                    await anyio.sleep_forever()

        sched = Scheduler([Group("g", capacity_bytes=9)], journal=FullDisk(4))
        with pytest.raises(tsched.JournalError, match="disk is full"):
            await serve()
        assert outcome == "told"
        assert not leases
        assert len(errors) == 1
        with pytest.raises(tsched.JournalError):
            await sched.acquire("a", "g")

    virtual(main)


def test_closing_refuses_who_waits_and_lets_errors_through_as_they_are(virtual: Main) -> None:
    async def main() -> None:
        errors: list[Exception] = []

        async def wait(name: str) -> None:
            try:
                await sched.acquire(name, "g")
            except tsched.SchedulerClosed as error:
                errors.append(error)

        async def serve(tasks: TaskGroup) -> None:
            async with sched:
                for name in "abc":
                    await sched.add_job(Job(name))
                await sched.acquire("a", "g")
                tasks.start_soon(wait, "b")
                tasks.start_soon(wait, "c")
                await settle()
                raise KeyError("mine")

        sched = Scheduler([Group("g")], journal=MemoryJournal())
        async with anyio.create_task_group() as tasks:
            with pytest.raises(KeyError, match="mine"):
                await serve(tasks)
        assert len(errors) == 2
        status = sched.status()
        assert not status.groups["g"].waiters, "nobody can come back for a request without a name"
        assert status.groups["g"].holder is not None, "a lease is kept for a restart"
        with pytest.raises(tsched.SchedulerClosed):
            await sched.acquire("a", "g")
        with pytest.raises(tsched.SchedulerClosed):
            sched.subscribe()

    virtual(main)


def test_closing_waits_for_moves_under_way_but_not_for_ever(virtual: Main) -> None:
    async def closing(drain_s: float) -> tuple[float, str]:
        backend = FakeBackend(costs=FixedTable(default_us=10_000_000))
        start = anyio.current_time()
        async with Scheduler([Group("g")], backend=backend, journal=MemoryJournal(), drain_s=drain_s) as sched:
            for name in "ab":
                await sched.add_job(Job(name))
            await _turn(sched, "a", 1)
            with anyio.move_on_after(1):
                await sched.acquire("b", "g")
        return anyio.current_time() - start, sched.status().jobs["a"].places["g"]

    async def main() -> None:
        took_s, standing = await closing(60)
        assert (round(took_s), standing) == (11, "parked")
        took_s, standing = await closing(3)
        assert (round(took_s), standing) == (5, "parking")

    virtual(main)


def test_observers_see_every_decision_and_a_slow_one_is_dropped(virtual: Main) -> None:
    async def main() -> None:
        journal = MemoryJournal()
        async with Scheduler([Group("g")], journal=journal) as sched:
            quick, slow = sched.subscribe(), sched.subscribe(buffer=2)
            seen: list[Record] = []

            async def watch() -> None:
                async with quick:
                    async for record in quick:
                        seen.append(record)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(watch)
                await sched.add_job(Job("a"))
                await _turn(sched, "a", 1)
                await settle()
                quick.close()
            assert seen == journal.records
            assert [record.seq for record in (await anext(slow), await anext(slow))] == [0, 1]
            with pytest.raises(tsched.TschedError, match="buffer"):
                await anext(slow)
            last = sched.subscribe()
        with pytest.raises(StopAsyncIteration):
            await anext(last)

    virtual(main)


def test_status_shows_the_line_as_it_will_be_served(virtual: Main) -> None:
    async def main() -> None:
        async with Scheduler([Group("g", capacity_bytes=9)], policy="shortest_phase_first") as sched:
            for name in "abc":
                await sched.add_job(Job(name, state_bytes={"g": 3}))
            lease = await sched.acquire("a", "g")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lambda: sched.acquire("b", "g", estimate_s=900))
                tasks.start_soon(lambda: sched.acquire("c", "g", estimate_s=1))
                await anyio.sleep(2)
                group = sched.status().groups["g"]
                assert [waiting.job for waiting in group.waiters] == ["c", "b"]
                assert [round(waiting.waited_s) for waiting in group.waiters] == [2, 2]
                assert group.residents == ("a",)
                assert sched.status().jobs["a"].holds == ("g",)
                assert sched.status().jobs["b"].waits_for == ("g",)
                await sched.release(lease)
                tasks.cancel_scope.cancel()

    virtual(main)


def test_an_idle_scheduler_sets_no_timer() -> None:
    async def main() -> None:
        async with Scheduler([Group("g", lease_ttl_us=None)]) as sched:
            await sched.add_job(Job("a"))
            await sched.acquire("a", "g")
            with pytest.raises(tsched.AcquireRefused):
                await sched.acquire("a", "g", within=99)
            await sched.acquire("a", "g")

    with pytest.raises(tsched.Deadlock):
        run("asyncio", main)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Scheduler([]),
        lambda: Scheduler([Group("g"), Group("g")]),
        lambda: Scheduler([Group("g")], backend={"h": FakeBackend()}),
        lambda: Scheduler([Group("g", max_phase_us=1, suspendable=True)]),
        lambda: Scheduler([Group("g")], policy="fifo?window=99"),
    ],
)
def test_a_scheduler_that_makes_no_sense_is_refused_when_made(make: Callable[[], Scheduler]) -> None:
    with pytest.raises(tsched.Invalid):
        make()


def test_a_forced_eviction_calls_off_the_move_that_hangs(virtual: Main) -> None:
    """Otherwise the late park would take the job's next state off the devices while it computes."""
    called_off: list[str] = []

    class Hanging(FakeBackend):
        async def park(self, order: Order) -> None:
            try:
                await anyio.sleep(1_000)
            except BaseException:
                called_off.append(order.job)
                raise

    async def main() -> None:
        async with Scheduler([Group("g")], backend=Hanging(), drain_s=0) as sched:
            for name in "ab":
                await sched.add_job(Job(name, state_bytes={"g": 64}))
            async with sched.hold("a", "g"):
                pass
            async with anyio.create_task_group() as tasks:

                async def evict() -> None:
                    await anyio.sleep(1)
                    await sched.force_eviction("g", "a")

                tasks.start_soon(evict)
                async with sched.hold("b", "g") as lease:
                    assert lease.waited_s == 1.0
                    await settle()
                    assert called_off == ["a"]

    virtual(main)


def test_what_goes_wrong_is_logged_for_those_who_run_the_service(
    virtual: Main, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with Scheduler([Group("g", max_hold_us=1_000_000)]) as sched:
            await sched.add_job(Job("a"))
            await sched.acquire("a", "g")
            await anyio.sleep(2)

    virtual(main)
    (record,) = caplog.records
    assert record.name == "tsched"
    assert "event='lease_revoked' lease=1" in record.getMessage()
