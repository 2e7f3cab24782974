"""A makespan that no schedule can beat, whatever its policy: the yardstick of every report.

Theory. Take one group and forget that the others can be busy. What is left of each turn on it is an operation that
cannot begin before its head (the time its client takes to get there if it never waits), takes its
length, and is followed by its tail (what its client must still do until its last yield). The best order of
operations with heads, lengths and tails on one machine, if they may be interrupted, is Jackson's: always
run what has the longest tail. Interrupting only helps, and so does forgetting the other groups, so its makespan is a
lower bound. It is never below the group's total busy time, nor below any client's own critical path. Switches count
for nothing here: with enough memory there are none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from tsched.sim.draw import AcquireOp, DrawnContext, DrawnJob


class Operation(NamedTuple):
    """One turn on one group: earliest start, length, and what its client does after it."""

    head_us: int
    length_us: int
    tail_us: int


def lower_bound_us(jobs: Sequence[DrawnJob]) -> int:
    """From the first request to the last yield it cannot take less than this."""
    start = first_request_us(jobs)
    by_group = operations(jobs)
    return max((jackson_us(ops) for ops in by_group.values()), default=start) - start


def first_request_us(jobs: Sequence[DrawnJob]) -> int:
    """When the first request comes: no policy can change that."""
    return min(job.arrival_us + _lead(context) for job in jobs for context in job.contexts)


def busy_us(jobs: Sequence[DrawnJob]) -> dict[str, int]:
    """How long each group is needed, if no turn has to wait for another group within it."""
    return {group: sum(op.length_us for op in ops) for group, ops in operations(jobs).items()}


def operations(jobs: Sequence[DrawnJob]) -> dict[str, list[Operation]]:
    """Every turn of every client, by group."""
    found: dict[str, list[Operation]] = {}
    for job in jobs:
        for context in job.contexts:
            turns = list(_turns(context))
            end = max((until for _, _, until in turns), default=0)
            for group, since, until in turns:
                operation = Operation(job.arrival_us + since, until - since, end - until)
                found.setdefault(group, []).append(operation)
    return found


def jackson_us(operations: list[Operation]) -> int:
    """The makespan, tails included, of Jackson's preemptive schedule on one machine."""
    waiting = [(op.head_us, -op.tail_us, op.length_us) for op in operations]
    heapify(waiting)
    ready: list[tuple[int, int]] = []
    now = finish = 0
    while waiting or ready:
        if not ready:
            now = max(now, waiting[0][0])
        while waiting and waiting[0][0] <= now:
            _, negative_tail, length = heappop(waiting)
            heappush(ready, (negative_tail, length))
        negative_tail, length = heappop(ready)
        until = min(now + length, waiting[0][0]) if waiting else now + length
        if until < now + length:
            heappush(ready, (negative_tail, now + length - until))
        else:
            finish = max(finish, until - negative_tail)
        now = until
    return finish


def _lead(context: DrawnContext) -> int:
    return next((when for when, op in context.path() if isinstance(op, AcquireOp)), 0)


def _turns(context: DrawnContext) -> Iterator[tuple[str, int, int]]:
    """(group, from, until) of every turn, if the client never waits."""
    slots: dict[int, list[str]] = {}
    since: dict[str, int] = {}
    for now, op in context.path():
        if isinstance(op, AcquireOp):
            slots[op.slot] = list(op.groups)
            since.update(dict.fromkeys(op.groups, now))
        else:
            given = op.groups or tuple(slots[op.slot])
            slots[op.slot] = [group for group in slots[op.slot] if group not in given]
            for group in given:
                yield group, since.pop(group), now
