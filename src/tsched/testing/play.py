"""A workload against the real scheduler: every client a task, the fake backend behind it, in virtual time.

    play(workload, "fair_share").records == simulate(workload, "fair_share").records

is what makes a simulation worth believing; see `tsched.sim.simulator` for the order in which both let things happen.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import NamedTuple

import anyio

from tsched.backends.fake import FakeBackend
from tsched.errors import TschedError, UnknownJob
from tsched.events import JobAdded, JobLeft, JobLost
from tsched.faults import Faults
from tsched.journal import Header, Journal, MemoryJournal, Record
from tsched.lease import Lease
from tsched.model import SECOND_US
from tsched.plugins import load_policy
from tsched.policies import Policy
from tsched.scheduler import Scheduler
from tsched.sim.draw import AcquireOp, DrawnContext, DrawnJob, RunOp, YieldOp
from tsched.sim.workload import Drawn, Workload
from tsched.testing.virtual_loop import run_virtual


class Played(NamedTuple):
    """The decision log, up to the moment at which the last job was gone."""

    header: Header
    records: list[Record]


def play(workload: Workload | Drawn, policy: str | Policy = "fifo", seed: int | None = None) -> Played:
    """Run `workload` live under `policy`, in virtual time; arguments as for `simulate`.

    Raises:
        Deadlock: nothing can happen any more, and jobs are not done.
    """
    drawn = workload if isinstance(workload, Drawn) else workload.draw(seed)
    journal = MemoryJournal()
    run_virtual(_play, drawn, policy, journal)
    assert journal.header is not None
    return Played(journal.header, _until_the_last_left(journal.records))


async def play_programs(drawn: Drawn, scheduler: Scheduler) -> None:
    """Do what the workload's jobs would do, from now on, until they are done. For asyncio, virtual or not."""
    start_us = _now_us()
    async with anyio.create_task_group() as tasks:
        for job in drawn.jobs:
            actor = _Actor(job, scheduler)
            _at(start_us + job.arrival_us, actor.due.set)
            tasks.start_soon(actor.run, name=f"job {job.job.name}")


async def _play(drawn: Drawn, policy: str | Policy, journal: Journal) -> None:
    workload = drawn.workload
    faults = Faults(drawn.seed, workload.faults)
    backend = FakeBackend.for_groups(workload.groups, costs=workload.costs, faults=faults)
    async with Scheduler(
        workload.groups, policy=load_policy(policy), backend=backend, journal=journal, drain_s=0
    ) as scheduler:
        await play_programs(drawn, scheduler)


class _Failed(Exception):
    """The job's program cannot go on."""


class _Actor:
    """One job: it arrives, its contexts run, and it leaves with the last of them, or when one of them fails."""

    def __init__(self, drawn: DrawnJob, scheduler: Scheduler) -> None:
        self.drawn = drawn
        self.scheduler = scheduler
        self.due = anyio.Event()
        self.over = False
        self.running = len(drawn.contexts)

    async def run(self) -> None:
        await self.due.wait()
        await self.scheduler.add_job(self.drawn.job)
        async with anyio.create_task_group() as tasks:
            for context in self.drawn.contexts:
                tasks.start_soon(_Player(self, context).run, name=f"client {context.client}")

    @property
    def gone(self) -> bool:
        return self.over or self.drawn.job.name not in self.scheduler.jobs

    async def leave(self) -> None:
        self.over = True
        with suppress(UnknownJob):  # it may have been lost before
            await self.scheduler.remove_job(self.drawn.job.name)


class _Player:
    """One client: it follows its program, and stands still while a lease of it is suspended."""

    def __init__(self, actor: _Actor, drawn: DrawnContext) -> None:
        self._actor = actor
        self._scheduler = actor.scheduler
        self._drawn = drawn
        self._durations = iter(drawn.durations)
        self._turns_left = drawn.iterations
        self._leases: dict[int, Lease] = {}
        self._request = 0
        self._rung = False
        self._woken = anyio.Event()

    async def run(self) -> None:
        try:
            while self._turns_left:
                self._turns_left -= 1
                for op in self._drawn.ops:
                    await self._step(op)
                    if self._actor.gone:
                        return
        except (_Failed, TschedError):
            if not self._actor.gone:
                await self._actor.leave()
            return
        self._actor.running -= 1
        if not self._actor.running:
            await self._actor.leave()

    async def _step(self, op: RunOp | AcquireOp | YieldOp) -> None:
        if isinstance(op, RunOp):
            length_us = next(self._durations)
            if length_us:
                await self._pass(length_us)
        elif isinstance(op, AcquireOp):
            await self._acquire(op)
        else:
            lease = self._leases.pop(op.slot) if op.last else self._leases[op.slot]
            await self._scheduler.release(lease, op.groups)

    async def _acquire(self, op: AcquireOp) -> None:
        within = None if op.parent is None else self._leases[op.parent]
        if within is not None and not within.groups:
            raise _Failed
        self._request += 1
        remaining_us = op.remaining_us + self._turns_left * self._drawn.iteration_us
        lease = await self._scheduler.acquire(
            self._drawn.job,
            op.groups,
            phase=op.phase,
            estimate_s=None if op.estimate_us is None else op.estimate_us / SECOND_US,
            remaining_s=remaining_us / SECOND_US,
            within=within,
            client=self._drawn.client,
            request=self._request,
        )
        lease.on_change = self._wake
        self._leases[op.slot] = lease

    async def _pass(self, left_us: int) -> None:
        """Let so much time pass in which no lease is suspended."""
        while not self._actor.gone:
            while self._paused():
                await self._pause()
            self._rung = False
            began_us = _now_us()
            timer = _at(began_us + left_us, self._ring)
            while not self._rung and not self._paused():
                await self._pause()
            if self._rung:
                return
            timer.cancel()
            left_us -= _now_us() - began_us

    def _paused(self) -> bool:
        suspended = [lease for lease in self._leases.values() if lease.suspended]
        if any(lease.lost_reason is not None for lease in suspended):
            raise _Failed
        return bool(suspended)

    async def _pause(self) -> None:
        self._woken = anyio.Event()
        await self._woken.wait()

    def _wake(self) -> None:
        self._woken.set()

    def _ring(self) -> None:
        self._rung = True
        self._woken.set()


def _now_us() -> int:
    return round(anyio.current_time() * SECOND_US)


def _at(when_us: int, callback: object) -> asyncio.TimerHandle:
    """A timer even where `when_us` is now, so that equal times keep their order."""
    return asyncio.get_running_loop().call_at(when_us / SECOND_US, callback)  # type: ignore[arg-type]


def _until_the_last_left(records: list[Record]) -> list[Record]:
    present = set[str]()
    end = 0
    for index, record in enumerate(records):
        match record.event:
            case JobAdded(job):
                present.add(job.name)
            case JobLeft(name) | JobLost(name):
                present.discard(name)
                end = end if present else index + 1
            case _:
                pass
    return records[:end]
