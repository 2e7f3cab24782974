"""How the state changes when something was decided: one function a command, and the table that finds it.

The engine applies each command as it decides it; a restart applies those that were recorded (rule J3).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tsched.commands import (
    Command,
    Discard,
    Grant,
    Hold,
    Ignore,
    Park,
    Quarantine,
    Refuse,
    Restore,
    Revoke,
    Select,
    Suspend,
    WakeAt,
)
from tsched.residency import Place, Standing
from tsched.state import GroupState, State
from tsched.turns import Lease, Request

STANDING: dict[type[Park | Restore | Discard], Standing] = {
    Park: Standing.PARKING,
    Restore: Standing.RESTORING,
    Discard: Standing.DISCARDING,
}


def apply(state: State, command: Command) -> None:
    """Apply one decision."""
    _DONE[type(command)](state, command)


def _refused(state: State, refuse: Refuse) -> None:
    request = state.requests.get((refuse.client, refuse.request))
    if request is not None:
        state.dequeue(request)
        if request.resumes is not None and request.resumes in state.leases:
            lease = state.leases[request.resumes]
            state.give_back(lease, tuple(lease.tokens))


def _revoked(state: State, revoke: Revoke) -> None:
    state.give_back(state.leases[revoke.lease], revoke.groups, unsafe=True)


def _held(state: State, hold: Hold) -> None:
    state.groups[hold.group].hold = (hold.job, hold.until_us)


def _quarantined(state: State, quarantine: Quarantine) -> None:
    state.quarantined[quarantine.job] = quarantine.reason
    for group in state.groups.values():
        state.forget_hold(group, quarantine.job)


def _will_wake(state: State, wake: WakeAt) -> None:
    state.wake_us = wake.when_us


def _ignored(state: State, ignore: Ignore) -> None:
    pass


def _granted(state: State, grant: Grant) -> None:
    lease = state.leases.get(grant.lease)
    if lease is not None and not lease.suspended:
        return
    request = state.requests[grant.client, grant.request]
    if grant.backfills is None:  # delays nobody's turn (rule P9)
        _count_skips(state, request)
    timed = not request.attached or request.ttl_us is not None
    for name in request.groups:
        timed = timed or state.groups[name].timed
    ranks = _ranks(state, request) if timed else {}
    state.dequeue(request)
    now = state.now
    if lease is None:
        lease = Lease(grant.lease, request, dict(grant.tokens), now, now)
        lease.restored, lease.ranks, lease.timed = grant.restored, ranks, timed
        lease.backfills = grant.backfills
        state.leases[lease.id] = lease
        state.holding[request.key] = lease
        state.next_lease = grant.lease + 1
    else:
        lease.suspended = False
        lease.since_us = now
        lease.tokens = dict(grant.tokens)
    lease.attached = request.attached
    if timed:
        lease.due_us = state.due(request)
        lease.ends_us = _ends(state, lease)
    for name, token in grant.tokens.items():
        _occupy(state, state.groups[name], lease, token, grant.restored)


def _ends(state: State, lease: Lease) -> int | None:
    """When a lease granted or resumed now has held for too long, renewed or not (rule E12)."""
    end: int | None = None
    for name in lease.tokens:
        hold = state.groups[name].group.max_hold_us
        if hold is not None:
            late = state.now + hold - lease.ran_us
            end = late if end is None else min(end, late)
    return end


def _ranks(state: State, request: Request) -> dict[str, int]:
    """The place in line that a turn keeps if it may be suspended (rule E14)."""
    ranks: dict[str, int] = {}
    for name in request.groups:
        group = state.groups[name]
        if group.group.max_phase_us is not None and (rank := group.queue.rank_of(request)) is not None:
            ranks[name] = rank
    return ranks


def _count_skips(state: State, request: Request) -> None:
    """Those who stood before this one were passed over once more: only options of a policy count that (P7, P8)."""
    if state.policy.window == 1 and not state.policy.linger_us:
        return
    for name in request.groups:
        group = state.groups[name]
        if state.policy.window == 1:
            head = group.queue.head()
            if head is not None and head is not request:
                head.skips += 1
            continue
        for other in group.queue.first(state.policy.window):
            if other is request:
                break
            other.skips += 1


def _occupy(state: State, group: GroupState, lease: Lease, token: int, restored: bool) -> None:
    request = lease.request
    name = group.group.name
    ledger = group.ledger
    place = ledger.places.get(request.job)
    if place is None:
        ledger.add(Place(request.job, Standing.RESIDENT, ledger.size(state.jobs[request.job])))
    else:
        place.restored = place.prefetched = False
        place.left_us = 0
    switch = max(0, state.now - max(group.idle_since, request.arrived_us)) if restored else 0
    if restored:
        state.estimates.observe_switch(name, switch)
    group.holder = lease
    group.token = token
    group.hold = None
    if lease.ran_us == 0:
        state.policy.granted(request, name, switch)
        group.queue.recharge(request)


def _selected(state: State, select: Select) -> None:
    request = state.requests[select.client, select.request]
    state.groups[select.group].selected = request
    if len(request.groups) > 1 and request.reserved_seq is None:
        request.reserved_seq = state.next_seq
        state.next_seq += 1
        state.reserve(request)


def _moving(state: State, move: Park | Restore | Discard) -> None:
    op, job, group = move.op, move.job, state.groups[move.group]
    ledger = group.ledger
    place = ledger.places[job]
    standing = STANDING[type(move)]
    if place.op != op:
        state.moves.pop(place.op, None)
        place.attempts = place.attempts + 1 if place.standing is standing else 1
        place.failed = []
    place.standing = standing
    place.op, place.token = op, move.token
    place.pending = list(move.nodes)
    group.token = max(group.token, move.token)
    state.next_op = max(state.next_op, op + 1)
    state.moves[op] = (group.group.name, job)
    if standing is Standing.RESTORING:
        ledger.set_on_device(place, True)
        place.prefetched = group.selected is None or group.selected.job != job


def _suspended(state: State, suspend: Suspend) -> None:
    lease = state.leases[suspend.lease]
    lease.suspended = True
    lease.ran_us += state.now - lease.since_us
    lease.due_us = lease.ends_us = None
    (name,) = lease.tokens
    group = state.groups[name]
    group.holder = None
    group.idle_since = state.now
    place = group.ledger.places[lease.job]
    group.ledger.set_unsafe(place, True)
    group.uneasy[lease.job] = None
    request = lease.request
    request.groups = (name,)
    request.resumes = lease.id
    request.skips = 0
    request.reserved_seq = None
    state.requests[request.key] = request
    state.enqueue(request, lease.ranks)


_DONE: dict[type[Command], Callable[[State, Any], None]] = {
    Grant: _granted,
    Refuse: _refused,
    Select: _selected,
    Park: _moving,
    Restore: _moving,
    Discard: _moving,
    Revoke: _revoked,
    Suspend: _suspended,
    Hold: _held,
    Quarantine: _quarantined,
    WakeAt: _will_wake,
    Ignore: _ignored,
}
