"""One node's share of one move, from order to event: what every driver does with a backend.

It never raises for a fault of the backend: each becomes the event that the engine must hear.
"""

from __future__ import annotations

import anyio

from tsched.backends import Backend, Order, Presence
from tsched.costs import MoveKind
from tsched.faults import DIED, TIMED_OUT, Answer, Result, answer
from tsched.model import SECOND_US


async def carry_out(backend: Backend, kind: MoveKind, order: Order, timeout_us: int) -> Answer:
    """Give the order, see that it took effect, and say what became of it, after `timeout_us` at the latest."""
    result, reason = Result.FAILED, TIMED_OUT
    with anyio.move_on_after(timeout_us / SECOND_US):
        result, reason = await _move(backend, kind, order, timeout_us)
    return answer(kind, order.op, order.node, order.job, result, reason)


async def _move(backend: Backend, kind: MoveKind, order: Order, timeout_us: int) -> tuple[Result, str]:
    try:
        await give(backend, kind, order)
        return _judge(kind, await _probe(backend, order, timeout_us), "")
    except Exception as error:  # a backend is foreign code: whatever it raises concerns this job alone
        failure = str(error) or repr(error)
    try:
        return _judge(kind, await _probe(backend, order, 0), failure)
    except Exception:
        return Result.FAILED, failure


async def give(backend: Backend, kind: MoveKind, order: Order) -> None:
    """The backend's own method for this kind."""
    match kind:
        case "park":
            await backend.park(order)
        case "restore":
            await backend.restore(order)
        case "discard":
            await backend.discard(order)


async def _probe(backend: Backend, order: Order, deadline_us: int) -> Presence:
    return await backend.probe(order.group, order.node, order.job, deadline_us=deadline_us)


def _judge(kind: MoveKind, seen: Presence, failure: str) -> tuple[Result, str]:
    """What was seen decides, not what was acknowledged."""
    if not seen.alive and kind != "discard":
        return Result.LOST, DIED
    if failure:
        return Result.FAILED, failure
    if kind == "restore":
        held = seen.parked_bytes
        return (Result.FAILED, f"{held} bytes are still parked") if held else (Result.DONE, "")
    held = seen.resident_bytes
    return (Result.FAILED, f"{held} bytes are still in device memory") if held else (Result.DONE, "")
