"""What can go wrong with a move, when, and what a driver then sees: the one definition for live and simulated runs.

A fault is a function of (seed, job, n) and of nothing else; `n` numbers the job's node-calls (a move on two nodes is
two) in the order of the commands. The fake backend plays the fault out against a driver that does

    with move_on_after(timeout): backend.park(order), then backend.probe(...) until the memory is seen to be gone

and `outcome()` says, without running anything, at which delay that driver answers and with what:

| fault | what the backend does                                                | driver's answer                |
|-------|----------------------------------------------------------------------|--------------------------------|
| NONE  | moves in `cost`, acknowledges then                                   | done at `cost`                 |
| FAIL  | raises after `cost`, nothing moved                                   | failed at `cost`               |
| HANG  | never returns, nothing moved                                         | failed at `timeout`            |
| LIE   | acknowledges at once, never moves; the probe shows it                | failed at `timeout`            |
| LATE  | acknowledges at once, moves in `late_factor * cost`; the probe waits | done at `late_factor * cost`   |
| LOSE  | the process dies after `cost`; to discard it, that is as good        | lost at `cost`; a discard: done|

Three rules complete the table. A move takes at least `SHORTEST_US`, because an event at the very instant of its command
would be ordered differently by a heap and by an event loop. What is not there before the timeout, a tie included, is
answered as failed at the timeout: the driver's deadline was set first, so it comes first. A move that is still under
way when a newer one is ordered for the same (group, node, job) is superseded: a driver does not answer it at all.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct

from tsched.costs import MoveKind, draw64
from tsched.errors import Invalid
from tsched.events import Discarded, JobLost, MoveFailed, Parked, Restored

SHORTEST_US = 1
LATE_FACTOR = 3

TIMED_OUT = "timed out"
INJECTED = "injected failure"
DIED = "its process is gone"


class Fault(StrEnum):
    NONE = "none"
    FAIL = "fail"
    HANG = "hang"
    LIE = "lie"
    LATE = "late"
    LOSE = "lose"


class FaultRates(Struct, frozen=True, forbid_unknown_fields=True):
    """The share of node-calls that meet each fault; together at most 1."""

    fail: float = 0.0
    hang: float = 0.0
    lie: float = 0.0
    late: float = 0.0
    lose: float = 0.0

    def __post_init__(self) -> None:
        for fault, rate in self.each():
            if not (math.isfinite(rate) and 0 <= rate <= 1):
                raise Invalid(f"fault rates: {fault} must be a number from 0 to 1, not {rate!r}")
        total = sum(rate for _, rate in self.each())
        if total > 1 + 1e-9:
            raise Invalid(f"fault rates: together they must be at most 1, not {total:g}")

    def each(self) -> tuple[tuple[Fault, float], ...]:
        return (
            (Fault.FAIL, self.fail),
            (Fault.HANG, self.hang),
            (Fault.LIE, self.lie),
            (Fault.LATE, self.late),
            (Fault.LOSE, self.lose),
        )


class Faults:
    """A seeded source of faults without any state: the same (job, n) always meets the same one."""

    def __init__(self, seed: int = 0, rates: FaultRates | None = None) -> None:
        self.seed = seed
        self.rates = rates or FaultRates()
        self._steps = _steps(self.rates)

    def draw(self, job: str, n: int) -> Fault:
        if not self._steps:
            return Fault.NONE
        point = draw64(self.seed, "fault", job, n)
        return next((fault for below, fault in self._steps if point < below), Fault.NONE)


class Result(StrEnum):
    DONE = "done"
    FAILED = "failed"
    LOST = "lost"


Answer = Parked | Restored | Discarded | MoveFailed | JobLost


class Outcome(NamedTuple):
    """`delay_us` after its command a driver answers `result`; `reason` is the text that goes with it."""

    delay_us: int
    result: Result
    reason: str = ""


def finish_us(fault: Fault, cost_us: int, late_factor: int = LATE_FACTOR) -> int | None:
    """How long after its start a move comes to its end, good or bad; None for one that never does."""
    match fault:
        case Fault.HANG | Fault.LIE:
            return None
        case Fault.LATE:
            return max(SHORTEST_US, cost_us * late_factor)
        case _:
            return max(SHORTEST_US, cost_us)


def outcome(kind: MoveKind, fault: Fault, cost_us: int, timeout_us: int, late_factor: int = LATE_FACTOR) -> Outcome:
    """What the driver answers, and when, by the table of this module."""
    ends_us = finish_us(fault, cost_us, late_factor)
    if ends_us is None or ends_us >= timeout_us:
        return Outcome(timeout_us, Result.FAILED, TIMED_OUT)
    if fault is Fault.FAIL:
        return Outcome(ends_us, Result.FAILED, INJECTED)
    if fault is Fault.LOSE and kind != "discard":
        return Outcome(ends_us, Result.LOST, DIED)
    return Outcome(ends_us, Result.DONE)


def answer(kind: MoveKind, op: int, node: str, job: str, result: Result, reason: str = "") -> Answer:
    """The event by which a driver tells the engine what became of a move on one node."""
    match result, kind:
        case Result.LOST, _:
            return JobLost(job, reason)
        case Result.FAILED, _:
            return MoveFailed(op, node, reason)
        case _, "park":
            return Parked(op, node)
        case _, "restore":
            return Restored(op, node)
        case _:
            return Discarded(op, node)


def _steps(rates: FaultRates) -> tuple[tuple[int, Fault], ...]:
    """The unit interval cut into one piece a fault, as 64-bit integers; what is left over is no fault."""
    steps, total = [], 0.0
    for fault, rate in rates.each():
        if rate > 0:
            total += rate
            steps.append((min(1 << 64, round(total * (1 << 64))), fault))
    return tuple(steps)
