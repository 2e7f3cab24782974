"""The scheduler's status as messages, and for each waiter what it waits for, in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tsched.rpc.v1 import operator_pb2 as pb
from tsched.status import GroupStatus, Holding, JobStatus, Placed, Status, Waiting

DRAINED = "drained by an operator"

_MOVING = {"parking": "is being parked", "restoring": "is being restored", "discarding": "is being dropped"}


def status_message(status: Status, names: Iterable[str], *, policy: str, version: str, stalled: str) -> pb.Status:
    """These groups, in this order, and the jobs that have to do with them; all jobs where no group is left out."""
    groups = [status.groups[name] for name in names]
    everything = len(groups) == len(status.groups)
    named = {} if everything else dict.fromkeys(job for group in groups for job in _jobs_of(group))
    jobs = [job for name, job in status.jobs.items() if everything or name in named]
    return pb.Status(
        now_s=status.now_s,
        policy=policy,
        version=version,
        groups=[_group(group) for group in groups],
        jobs=[_job(job) for job in jobs],
        stalled=stalled,
    )


def is_drained(group: GroupStatus) -> bool:
    """Whether an operator closed it, and not the absence of an agent."""
    return any(reason == DRAINED for reason in group.lost.values())


def why(group: GroupStatus, place: int) -> str:
    """What the waiter at this place of the line waits for."""
    waiter = group.waiters[place]
    if is_drained(group):
        return f"{group.name} takes no new turns: {DRAINED}"
    if group.lost:
        lost = "; ".join(f"node {node}: {reason}" for node, reason in group.lost.items())
        return f"{group.name} takes no new turns: {lost}"
    if waiter.selected:
        return _moves(group, waiter)
    ahead = "" if not place else f", {place} before it"
    if group.holder is not None:
        return f"job {group.holder.job} has the turn, for {group.holder.held_s:.0f} s now{ahead}"
    return f"its turn has not come{ahead}"


def _moves(group: GroupStatus, waiter: Waiting) -> str:
    """It is next."""
    moving = [
        f"{_whose(place, waiter)} {_MOVING[place.standing]}" for place in group.places if place.standing in _MOVING
    ]
    failed = [f"{_whose(place, waiter)} could not be moved" for place in group.places if place.failures]
    if moving or failed:
        return "it is next: " + ", ".join(moving + failed)
    others = [name for name in waiter.groups if name != group.name]
    return "it is next" + (f", once it has {', '.join(others)} too" if others else "")


def _whose(place: Placed, waiter: Waiting) -> str:
    return "its state" if place.job == waiter.job else f"the state of job {place.job}"


def _jobs_of(group: GroupStatus) -> Iterator[str]:
    if group.holder is not None:
        yield group.holder.job
    yield from (waiter.job for waiter in group.waiters)
    yield from (place.job for place in group.places)


def _group(group: GroupStatus) -> pb.GroupStatus:
    return pb.GroupStatus(
        name=group.name,
        capacity_bytes=group.capacity_bytes,
        holder=None if group.holder is None else _holding(group.holder),
        waiters=[_waiting(group, place) for place in range(len(group.waiters))],
        places=[
            pb.Placed(job=each.job, standing=each.standing, size_bytes=each.size_bytes, failures=each.failures)
            for each in group.places
        ],
        lost=dict(group.lost),
        drained=is_drained(group),
    )


def _holding(holding: Holding) -> pb.Holding:
    return pb.Holding(
        lease=holding.lease,
        job=holding.job,
        client=holding.client,
        token=holding.token,
        phase=holding.phase,
        held_s=holding.held_s,
        attached=holding.attached,
    )


def _waiting(group: GroupStatus, place: int) -> pb.Waiting:
    waiter = group.waiters[place]
    return pb.Waiting(
        job=waiter.job,
        client=waiter.client,
        request=waiter.request,
        phase=waiter.phase,
        groups=waiter.groups,
        waited_s=waiter.waited_s,
        selected=waiter.selected,
        why=why(group, place),
    )


def _job(job: JobStatus) -> pb.JobStatus:
    return pb.JobStatus(
        name=job.name,
        owner=job.owner,
        weight=job.weight,
        places=dict(job.places),
        holds=job.holds,
        waits_for=job.waits_for,
        quarantined=job.quarantined,
    )
