"""Runs some of the jobs, each in two processes, through a live scheduler, and says what came of it.

Nothing here computes: this process schedules, and waits for what the jobs' processes report. The clock that counts
starts with the first request, when every process has imported what it needs.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import anyio

from examples.three_jobs.devices import Devices
from examples.three_jobs.jobs import Scale
from examples.three_jobs.moves import Moves, measure_moves
from examples.three_jobs.outcome import Outcome
from examples.three_jobs.plan import Phase
from examples.three_jobs.process import SAMPLERS, TRAINERS, Setup, follow, lead
from tsched import Scheduler
from tsched.errors import TschedError
from tsched.journal import JsonlJournal, Record, read_log
from tsched.model import Job as Registered
from tsched.rpc.hub import WorkerHub

_PROCESSES = multiprocessing.get_context("forkserver")
# torch is imported once, in a process that connects to nothing and of which all the others are copies.
_PROCESSES.set_forkserver_preload(["examples.three_jobs.leader"])
END_S = 60.0


class JobFailed(TschedError, RuntimeError):
    """A job's process ended before its work did; what it said is on stderr."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Where runs take place."""

    scale: Scale
    seed: int
    policy: str
    devices: Devices
    folder: Path

    def setup(self, job: str, group: str) -> Setup:
        return Setup(job, self.scale, self.seed, self.address, self.devices.of(group), self.folder)

    @property
    def address(self) -> str:
        return f"unix:{self.folder / 'scheduler.sock'}"


@dataclass(frozen=True, slots=True)
class Run:
    """One run: its decision log, each job's outcome, and how long moves took where they were measured."""

    records: Sequence[Record]
    outcomes: Mapping[str, Outcome]
    moves: Moves


async def run(
    jobs: Sequence[str],
    stage: Stage,
    log: Path,
    tick: Callable[[str, Phase], None],
    *,
    moves: bool = False,
    disturbed: bool = False,
) -> Run:
    """Run `jobs` together, and write the decision log.

    Args:
        tick: called with job and phase whenever one ends.
        moves: measure parks and restores once the jobs are done.
        disturbed: between every two turns of a job another one, which needs all the memory, has its turn.

    Raises:
        JobFailed: a process ended early; the other jobs ran to their end.
    """
    hub, took = WorkerHub(), Moves()
    groups = stage.devices.groups(exclusive=disturbed)
    with _journal(log) as journal:
        async with (
            Scheduler(groups, policy=stage.policy, backend=hub.backend, journal=journal) as scheduler,
            hub.serve(scheduler, stage.address),
            anyio.create_task_group() as tasks,
        ):
            for group in groups if disturbed else ():
                tasks.start_soon(_disturb, scheduler, group.name)
            outcomes = await _see_through(jobs, stage, tick, measuring=hub.backend if moves else None, took=took)
            tasks.cancel_scope.cancel()
    return Run(read_log(log)[1], outcomes, took)


@contextmanager
def _journal(log: Path) -> Iterator[JsonlJournal]:
    """A log that begins anew."""
    log.unlink(missing_ok=True)
    with closing(JsonlJournal(log)) as journal:
        yield journal


async def _see_through(
    jobs: Sequence[str], stage: Stage, tick: Callable[[str, Phase], None], *, measuring: Any, took: Moves
) -> dict[str, Outcome]:
    """Start every process, let all go at once, and wait for their ends."""
    outcomes: dict[str, Outcome] = {}
    failed: list[str] = []

    async def watch(job: str, control: Connection) -> None:
        try:
            outcomes[job] = await _watch(job, control, tick)
        except EOFError:
            failed.append(job)

    with _processes(jobs, stage) as controls:
        for job, control in controls.items():
            await _hear(job, control)
        async with anyio.create_task_group() as watching:
            for job, control in controls.items():
                control.send("go")
                watching.start_soon(watch, job, control)
        if measuring is not None:
            for job in outcomes:
                took.update(await measure_moves(measuring, job))
        for job in outcomes:
            controls[job].send("done")
        await anyio.to_thread.run_sync(_join_all)
    if failed:
        raise JobFailed(f"the processes of {', '.join(sorted(failed))} ended early; see what they wrote above")
    return outcomes


async def _watch(job: str, control: Connection, tick: Callable[[str, Phase], None]) -> Outcome:
    while True:
        said = await _receive(control)
        if isinstance(said, Outcome):
            return said
        tick(job, said)


async def _hear(job: str, control: Connection) -> None:
    try:
        await _receive(control)
    except EOFError:
        raise JobFailed(f"the processes of {job} did not start; see what they wrote above") from None


async def _receive(control: Connection) -> Any:
    await anyio.wait_readable(control.fileno())
    return control.recv()


async def _disturb(scheduler: Scheduler, group: str) -> None:
    """A job that only takes turns, over and over."""
    name = f"other-{group}"
    await scheduler.add_job(Registered(name))
    while True:
        async with scheduler.hold(name, group):
            await anyio.sleep(0.001)
        await anyio.sleep(0.001)


@contextmanager
def _processes(jobs: Sequence[str], stage: Stage) -> Iterator[dict[str, Connection]]:
    """Two processes a job, and this end of a pipe to the leading one; none outlives the block."""
    started: list[BaseProcess] = []
    controls: dict[str, Connection] = {}
    try:
        for job in jobs:
            controls[job], control = _PROCESSES.Pipe()
            leading, sampling = _PROCESSES.Pipe()
            started.append(_start(lead, stage.setup(job, TRAINERS), control, leading))
            started.append(_start(follow, stage.setup(job, SAMPLERS), sampling))
            for end in (control, leading, sampling):
                end.close()
        yield controls
    finally:
        for process in started:
            process.kill()
            process.join()
        for control in controls.values():
            control.close()


def _start(target: Callable[..., None], setup: Setup, *arguments: Any) -> BaseProcess:
    process = _PROCESSES.Process(target=target, args=(setup, *arguments), name=f"{setup.job} {setup.device.group}")
    process.start()
    return process


def _join_all() -> None:
    for process in multiprocessing.active_children():
        process.join(END_S)
