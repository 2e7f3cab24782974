"""Structural invariants of the engine's state: what must hold between any two events."""

from __future__ import annotations

from tsched.residency import Standing
from tsched.state import GroupState, State
from tsched.testing.witness import Violation
from tsched.turns import Request


def check_structure(state: State) -> None:
    """Raise `Violation` where two parts of the state disagree, or a waiter was forgotten."""
    for name, group in state.groups.items():
        _check_group(state, name, group)
    for lease in state.leases.values():
        _must(bool(lease.tokens), f"lease {lease.id} holds nothing")
        _must(state.holding.get(lease.request.key) is lease, f"lease {lease.id} is not found by its request")
        for name in lease.tokens:
            held = state.groups[name].holder is lease
            _must(held != lease.suspended, f"lease {lease.id} and group {name} disagree on who holds")
    for request in state.requests.values():
        _must(request.job in state.jobs, f"{request.key} waits for a job that is gone")
        _must(request.job not in state.quarantined, f"{request.key} waits for a quarantined job")
        _must(all(request in state.groups[name].queue for name in request.groups), f"{request.key} stands in no line")


def _check_group(state: State, name: str, group: GroupState) -> None:
    ledger = group.ledger
    places = ledger.places.values()
    _must(ledger.used == sum(p.size_bytes for p in places if p.on_device), f"{name}: bytes in use are miscounted")
    _must(ledger.unsafe == sum(p.unsafe for p in places), f"{name}: unsafe jobs are miscounted")
    line = list(group.queue.ordered())
    _must(len(line) == len(group.queue) == len({r.key for r in line}), f"{name}: the line is miscounted")
    _must(all(state.requests.get(r.key) is r for r in line), f"{name}: somebody in line is no longer waiting")
    _must(group.selected is None or group.selected in group.queue, f"{name}: who is next is not waiting")
    moving = (Standing.PARKING, Standing.RESTORING, Standing.DISCARDING)
    for place in places:
        _must(bool(place.pending) == (place.op in state.moves), f"{name}: move {place.op} of {place.job} is misfiled")
        _must(not place.pending or place.standing in moving, f"{name}: {place.job} moves while standing")
        stuck = (
            bool(place.failed) and not place.pending and not group.lost and place.standing is not Standing.DISCARDING
        )
        _must(not stuck, f"{name}: the failed move of {place.job} was forgotten")
    _check_progress(state, name, group, moving)


def _check_progress(state: State, name: str, group: GroupState, moving: tuple[Standing, ...]) -> None:
    """An idle group with a line waits for something: a move, a lost node, another group, or a time (rule E19)."""
    if group.holder is not None or group.lost or len(group.queue) == 0:
        return
    moves = any(place.standing in moving for place in group.ledger.places.values())
    if all(any(state.groups[other].lost for other in request.groups) for request in group.queue.ordered()):
        return
    elsewhere = any(_waits_elsewhere(state, name, request, moving) for request in group.reserving)
    held_back = group.hold is not None and (group.hold[1] > state.now or state.wake_us is not None)
    _must(moves or elsewhere or held_back, f"{name} is idle and nobody of {len(group.queue)} waiting is served")


def _waits_elsewhere(state: State, name: str, request: Request, moving: tuple[Standing, ...]) -> bool:
    """A reservation waits in good order: another of its groups is held, moves, or is being made ready for somebody."""
    others = [state.groups[other] for other in request.groups if other != name]
    return any(
        group.holder is not None
        or group.selected is not request
        or any(place.standing in moving for place in group.ledger.places.values())
        for group in others
    )


def _must(holds: bool, what: str) -> None:
    if not holds:
        raise Violation(what)
