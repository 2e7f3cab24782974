"""How the state changes when something happened: one function an event, and the table that finds it.

Nothing is decided here (rule J3): each function applies its event, marks the groups about which something changed,
and answers why nothing did, or an empty string.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tsched.events import (
    Discarded,
    Event,
    EvictionForced,
    JobAdded,
    JobLeft,
    JobLost,
    JobReadmitted,
    JobUpdated,
    LeaseRenewed,
    MoveFailed,
    NodeLost,
    NodeReturned,
    Parked,
    PhaseRequested,
    PhaseYielded,
    RequestCancelled,
    Restarted,
    Restored,
    Woke,
)
from tsched.model import Job
from tsched.residency import Place, Standing
from tsched.state import GroupState, State
from tsched.turns import Key, Request

BACKOFF_US = 1_000_000
BACKOFF_MAX_US = 60_000_000


def apply(state: State, event: Event, now: int) -> str:
    """Apply one event at `now` (microseconds); time never goes back."""
    if now > state.now:
        state.now = now
    return _HAPPENED[type(event)](state, event)


def _requested(state: State, event: PhaseRequested) -> str:
    key = (event.client, event.request)
    if key in state.requests or key in state.holding:
        _attach(state, key)
        return ""
    job = state.jobs.get(event.job)
    request = Request(
        key=key,
        client=event.client,
        number=event.request,
        job=event.job,
        owner=job.account if job else event.job,
        weight_milli=job.weight_milli if job else 1000,
        groups=event.groups,
        phase=event.phase,
        estimate_us=state.estimates.estimate(event.job, event.phase, event.estimate_us),
        remaining_us=_remaining(state, event, job),
        arrived_us=state.now,
        seq=state.next_seq,
        within=event.within,
        ttl_us=event.ttl_us,
    )
    state.next_seq += 1
    state.requests[key] = request
    named = set(event.groups)
    if job is not None and len(named) == len(event.groups) and state.groups.keys() >= named:
        state.enqueue(request)
    return ""


def _remaining(state: State, event: PhaseRequested, job: Job | None) -> int | None:
    """The work left: as the client says now, else what the job declared less what it has been served."""
    if event.remaining_us is not None or job is None:
        return event.remaining_us
    return state.estimates.remaining(job.name, job.work_us)


def _attach(state: State, key: Key) -> None:
    """The client came back for its request, or for the lease that it became (rule J5)."""
    if key in state.requests:
        state.requests[key].attached = True
    if key in state.holding:
        lease = state.holding[key]
        lease.attached = lease.request.attached = True
        lease.due_us = state.due(lease.request)


def _cancelled(state: State, event: RequestCancelled) -> str:
    key = (event.client, event.request)
    request = state.requests.get(key)
    if request is None:
        return "no such request is waiting"
    state.dequeue(request)
    if request.resumes is not None:
        lease = state.leases[request.resumes]
        state.give_back(lease, tuple(lease.tokens))
    return ""


def _yielded(state: State, event: PhaseYielded) -> str:
    lease = state.leases.get(event.lease)
    if lease is None:
        return f"lease {event.lease} has ended"
    if event.groups and not any(name in lease.tokens for name in event.groups):
        return f"lease {event.lease} does not hold {', '.join(event.groups)}"
    if lease.suspended:
        state.dequeue(state.requests[lease.request.key])
    state.give_back(lease, event.groups or tuple(lease.tokens))
    if not lease.tokens:
        state.estimates.observe(lease.job, lease.request.phase, state.length(lease))
    return ""


def _renewed(state: State, event: LeaseRenewed) -> str:
    lease = state.leases.get(event.lease)
    if lease is None:
        return f"lease {event.lease} has ended"
    lease.attached = lease.request.attached = True
    lease.due_us = state.due(lease.request)
    return ""


def _moved(state: State, event: Parked | Restored | Discarded | MoveFailed) -> str:
    op, node = event.op, event.node
    where = state.moves.get(op)
    if where is None:
        return f"operation {op} is over"
    group = state.groups[where[0]]
    place = group.ledger.places[where[1]]
    if node not in place.pending:
        return f"node {node!r} of operation {op} has answered"
    state.dirty[where[0]] = None
    place.pending.remove(node)
    if type(event) is MoveFailed:
        place.failed.append(node)
        place.why = event.reason
    if not place.pending:
        del state.moves[op]
        group.uneasy[place.job] = None
        if place.failed:
            place.retry_us = state.now + min(BACKOFF_MAX_US, BACKOFF_US << min(place.attempts, 10))
        else:
            _arrived(state, group, place)
    return ""


def _arrived(state: State, group: GroupState, place: Place) -> None:
    """Every node confirmed the move."""
    place.attempts, place.why = 0, ""
    match place.standing:
        case Standing.PARKING:
            place.standing = Standing.PARKED
            group.ledger.set_on_device(place, False)
            group.ledger.set_unsafe(place, False)
        case Standing.RESTORING:
            place.standing = Standing.RESIDENT
            place.restored = True
        case _:
            group.ledger.remove(place.job)
            group.uneasy.pop(place.job, None)


def _added(state: State, event: JobAdded) -> str:
    job = event.job
    if job.name in state.jobs:
        return f"job {job.name!r} is registered already"
    state.jobs[job.name] = job
    return ""


def _updated(state: State, event: JobUpdated) -> str:
    job = event.job
    if job.name not in state.jobs:
        return f"job {job.name!r} is not registered"
    state.jobs[job.name] = job
    for name, group in state.groups.items():
        group.ledger.resize(job)
        state.dirty[name] = None
    return ""


def _gone(state: State, event: JobLeft | JobLost) -> str:
    name = event.job
    if state.jobs.pop(name, None) is None:
        return f"job {name!r} is not registered"
    state.quarantined.pop(name, None)
    state.estimates.forget(name)
    for group_name, group in state.groups.items():
        state.forget_hold(group, name)
        group.ledger.forget(name)
        place = group.ledger.places.get(name)
        if place is not None:
            place.doomed = True
            group.uneasy[name] = None
            state.dirty[group_name] = None
    return ""


def _readmitted(state: State, event: JobReadmitted) -> str:
    known = state.quarantined.pop(event.job, None) is not None
    return "" if known else f"job {event.job!r} is not quarantined"


def _node(state: State, event: NodeLost | NodeReturned) -> str:
    name, node = event.group, event.node
    group = state.groups.get(name)
    if group is None or node not in group.group.nodes:
        return f"group {name!r} has no node {node!r}"
    state.dirty[name] = None
    if isinstance(event, NodeLost):
        group.lost[node] = event.reason
        state.dirty.update((other, None) for request in group.reserving for other in request.groups)
        return ""
    if group.lost.pop(node, None) is None:
        return f"node {node!r} was not lost"
    state.dirty.update((other, None) for request in group.queue.ordered() for other in request.groups)
    for place in group.ledger.places.values():
        group.uneasy[place.job] = None
        if place.failed:
            place.attempts = 0
            place.retry_us = state.now
    return ""


def _evicted(state: State, event: EvictionForced) -> str:
    name, job = event.group, event.job
    group = state.groups.get(name)
    if group is None or job not in group.ledger.places:
        return f"job {job!r} has no state on group {name!r}"
    place = group.ledger.places[job]
    state.moves.pop(place.op, None)
    state.dirty[name] = None
    group.ledger.remove(job)
    group.uneasy.pop(job, None)
    return ""


def _woke(state: State, event: Woke) -> str:
    state.wake_us = None
    return ""


def _restarted(state: State, event: Restarted) -> str:
    state.dirty.update(dict.fromkeys(state.groups))
    state.wake_us = None
    for request in state.requests.values():
        request.attached = False
    for lease in state.leases.values():
        lease.attached = lease.request.attached = False
        if not lease.suspended:
            lease.due_us = state.due(lease.request)
    return ""


_HAPPENED: dict[type[Event], Callable[[State, Any], str]] = {
    PhaseRequested: _requested,
    PhaseYielded: _yielded,
    RequestCancelled: _cancelled,
    LeaseRenewed: _renewed,
    Parked: _moved,
    Restored: _moved,
    Discarded: _moved,
    MoveFailed: _moved,
    JobAdded: _added,
    JobUpdated: _updated,
    JobLeft: _gone,
    JobLost: _gone,
    JobReadmitted: _readmitted,
    NodeLost: _node,
    NodeReturned: _node,
    EvictionForced: _evicted,
    Restarted: _restarted,
    Woke: _woke,
}
