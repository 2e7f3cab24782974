"""How long parks and restores take, on the very path that a switch goes: for the simulator, which must be told."""

from __future__ import annotations

import time

from examples.three_jobs.process import SAMPLERS, TRAINERS
from examples.three_jobs.turns import NODE
from tsched.backends import Backend, Order
from tsched.backends.moves import carry_out
from tsched.costs import MoveKind
from tsched.errors import BackendError
from tsched.events import Parked, Restored
from tsched.model import seconds

Moves = dict[tuple[str, str], list[float]]
ROUNDS = 5
BEYOND = 1 << 40  # tokens and operations that no scheduler has reached
TIMEOUT_US = seconds(60)


async def measure_moves(backend: Backend, job: str) -> Moves:
    """Seconds of each of some parks and restores of this job, by ("park" or "restore", group)."""
    took: Moves = {}
    for at, group in enumerate((TRAINERS, SAMPLERS)):
        for number in range(ROUNDS):
            for kind in ("park", "restore"):
                op = BEYOND + 2 * (ROUNDS * at + number) + (kind == "restore")
                took.setdefault((kind, group), []).append(await _timed(backend, kind, group, job, op))
    return took


async def _timed(backend: Backend, kind: MoveKind, group: str, job: str, op: int) -> float:
    began = time.perf_counter()
    answer = await carry_out(backend, kind, Order(op, group, NODE, job, BEYOND), TIMEOUT_US)
    took = time.perf_counter() - began
    if not isinstance(answer, Parked | Restored):
        raise BackendError(f"{kind} of job {job!r} on {group!r}, to measure it: {answer}")
    return took
