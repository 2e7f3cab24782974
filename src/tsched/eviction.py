"""Whom to evict when memory is short: the one whose next turn is predicted to be farthest away (rule R6).

Someone who was brought in early and passed over goes first; then jobs that do not wait, the one expected back last
first; then jobs that wait, the last in line first. Ties go by name. A policy may bring its own `eviction_order`.
"""

from __future__ import annotations

from tsched.model import Job
from tsched.residency import Place
from tsched.state import GroupState, State

FAR = 1 << 62


def victims(state: State, group: GroupState, job: Job) -> list[Place]:
    """The resident places to park so that a turn of `job` fits, once what leaves already has left."""
    short = group.ledger.shortfall(job)
    if short <= 0:
        return []
    order = state.policy.eviction_order(group.ledger.evictable(job.name), lambda place: _due(state, group, place))
    return group.ledger.victims(short, order)


def last_to_leave(group: GroupState) -> str | None:
    """The job whose turn on this group ended just now."""
    places = [place for place in group.ledger.places.values() if place.left_us]
    return max(places, key=lambda place: (place.left_us, place.job)).job if places else None


def _due(state: State, group: GroupState, place: Place) -> int:
    """When the job's next turn is expected: later is farther."""
    if place.prefetched and place.job not in _selected(group):
        return FAR
    waiting = group.by_job.get(place.job)
    if waiting:
        return state.now - FAR + waiting[0].seq
    return FAR - 1 if place.away_us is None else max(state.now, place.left_us + place.away_us)


def _selected(group: GroupState) -> tuple[str, ...]:
    return (group.selected.job,) if group.selected is not None else ()
