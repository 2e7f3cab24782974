"""A workload made definite: every duration an integer, every program a flat list of operations.

What one job draws depends on the seed and on its own name, never on another job or on the policy. The durations of a
context lie one after another in the order in which its program needs them.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from msgspec import structs

from tsched.model import Job
from tsched.sim.program import Acquire, Context, JobProgram, Run, Step


class RunOp(NamedTuple):
    """Take the next duration and let it pass."""

    on_device: bool


class AcquireOp(NamedTuple):
    """Ask for `groups`; `slot` numbers the lease within the iteration, `parent` the slot that is held meanwhile.

    `remaining_us` is what the rest of this iteration is expected to take.
    """

    slot: int
    groups: tuple[str, ...]
    phase: str
    estimate_us: int | None
    remaining_us: int
    parent: int | None


class YieldOp(NamedTuple):
    """Give back `groups` of the lease in `slot`; `last` when none of it is left."""

    slot: int
    groups: tuple[str, ...]
    last: bool


Op = RunOp | AcquireOp | YieldOp


class DrawnContext:
    """One client of the scheduler: its operations for one iteration, and its durations for all of them."""

    __slots__ = ("client", "durations", "iteration_us", "iterations", "job", "ops", "slots")

    def __init__(self, job: str, client: str, context: Context, rng: Random) -> None:
        self.job = job
        self.client = client
        self.iterations = context.iterations
        self.ops, self.slots, self.iteration_us = _compile(context.steps)
        draws = [step.duration.draw for step in context.steps if isinstance(step, Run)]
        self.durations = array("q", [draw(rng, turn) for turn in range(context.iterations) for draw in draws])

    def path(self) -> Iterator[tuple[int, AcquireOp | YieldOp]]:
        """Every acquire and yield of every iteration, with the time at which it would come if nobody ever waited."""
        durations = iter(self.durations)
        now = 0
        for _ in range(self.iterations):
            for op in self.ops:
                if isinstance(op, RunOp):
                    now += next(durations)
                else:
                    yield now, op


class DrawnJob(NamedTuple):
    job: Job
    arrival_us: int
    contexts: tuple[DrawnContext, ...]


def draw_job(program: JobProgram, seed: int) -> DrawnJob:
    """Resolve one job's durations; its random numbers are nobody else's."""
    rng = Random(f"{seed}\0{program.job.name}")
    contexts = tuple(
        DrawnContext(program.job.name, program.client(context), context, rng) for context in program.contexts
    )
    job = program.job
    if job.work_us is None:
        job = structs.replace(job, work_us=sum(_device_us(context) for context in program.contexts))
    return DrawnJob(job, program.arrival_us, contexts)


def _device_us(context: Context) -> int:
    """The device time that the context is expected to take."""
    total, held = 0, set[str]()
    for step in context.steps:
        if isinstance(step, Run):
            total += step.duration.expected_us() if held else 0
        elif isinstance(step, Acquire):
            held.update(step.groups)
        else:
            held.difference_update(step.groups or tuple(held))
    return total * context.iterations


def _compile(steps: tuple[Step, ...]) -> tuple[tuple[Op, ...], int, int]:
    """The operations of one iteration, how many leases it takes, and how long it is expected to take."""
    total = left = sum(step.duration.expected_us() for step in steps if isinstance(step, Run))
    ops: list[Op] = []
    leases: dict[int, list[str]] = {}
    slot = 0
    for step in steps:
        if isinstance(step, Run):
            ops.append(RunOp(bool(leases)))
            left -= step.duration.expected_us()
        elif isinstance(step, Acquire):
            parent = next(reversed(leases), None)
            ops.append(AcquireOp(slot, step.groups, step.phase, step.estimate_us, left, parent))
            leases[slot] = list(step.groups)
            slot += 1
        else:
            given = step.groups or tuple(group for held in leases.values() for group in held)
            for each in list(leases):
                mine = tuple(group for group in leases[each] if group in given)
                if mine:
                    leases[each] = [group for group in leases[each] if group not in mine]
                    ops.append(YieldOp(each, () if not leases[each] else mine, not leases[each]))
                    if not leases[each]:
                        del leases[each]
    return tuple(ops), slot, total
