"""What llm-d's clients read of a group, made from what the scheduler shows."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping

from tsched.llmd import orchestrator_pb2 as pb
from tsched.status import GroupStatus, Placed

State = pb.GroupStatus.State
JobState = pb.SnapshotAgentJobState.State

_MOVING = ("parking", "restoring", "discarding")


def group_status(group: GroupStatus) -> pb.GroupStatus:
    """The group now; its timestamp is when its state began, as far as that is known."""
    state, since_s = _state(group)
    message = pb.GroupStatus(
        group_id=group.name,
        group_state=state,
        locking_job="" if group.holder is None else group.holder.job,
        active_job=_active(group),
        loaded_job=_loaded(group),
        waiter_queue_depth=len(group.waiters),
    )
    message.state_timestamp.FromNanoseconds(max(0, time.time_ns() - int(since_s * 1e9)))
    return message


def job_states(
    group: GroupStatus, quarantined: Collection[str], nodes: Mapping[str, str]
) -> Iterator[pb.SnapshotAgentJobState]:
    """Each job's state on each node, which is named by its agent's address where it has one."""
    for node, address in nodes.items():
        for place in group.places:
            state = JobState.STATE_FAULTED if place.job in quarantined else _job_state(place)
            yield pb.SnapshotAgentJobState(agent=address or node, job_id=place.job, job_state=state)


def _state(group: GroupStatus) -> tuple[pb.GroupStatus.State.ValueType, float]:
    """The state, and for how many seconds it has been so."""
    if group.holder is not None:
        return State.STATE_LOCKED, group.holder.held_s
    if group.lost:
        return State.STATE_UNKNOWN, 0.0
    selected = next((waiter for waiter in group.waiters if waiter.selected), None)
    if selected is not None:
        return State.STATE_SWITCHING, min(group.idle_s, selected.waited_s)
    if any(place.standing in _MOVING for place in group.places):
        return State.STATE_SWITCHING, 0.0
    return (State.STATE_IDLE_YIELDED if group.places else State.STATE_IDLE), group.idle_s


def _active(group: GroupStatus) -> str:
    """The job that is, or should be, on the devices."""
    if group.holder is not None:
        return group.holder.job
    selected = next((waiter.job for waiter in group.waiters if waiter.selected), None)
    return selected or _loaded(group)


def _loaded(group: GroupStatus) -> str:
    """The job that is on the devices: the holder's where it is, else one that stayed there."""
    residents = group.residents
    if group.holder is not None and group.holder.job in residents:
        return group.holder.job
    return residents[0] if residents else ""


def _job_state(place: Placed) -> pb.SnapshotAgentJobState.State.ValueType:
    if place.standing in _MOVING:
        return JobState.STATE_TRANSITIONING
    return JobState.STATE_SAVED if place.standing == "parked" else JobState.STATE_RUNNING
