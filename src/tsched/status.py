"""What a scheduler shows of itself: plain values, read from the engine's state at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tsched.model import SECOND_US
from tsched.state import GroupState, State
from tsched.turns import Lease, Request


@dataclass(frozen=True, slots=True)
class Holding:
    """A lease on one group. `attached` is false while its client has not come back after a restart."""

    lease: int
    job: str
    client: str
    request: int
    phase: str
    token: int
    held_s: float
    attached: bool


@dataclass(frozen=True, slots=True)
class Waiting:
    """A request in line. `selected`: it is next, and states are moved for it."""

    job: str
    client: str
    request: int
    phase: str
    groups: tuple[str, ...]
    waited_s: float
    selected: bool
    attached: bool


@dataclass(frozen=True, slots=True)
class Placed:
    """Where one job's state on one group is: resident, parking, parked, restoring or discarding."""

    job: str
    standing: str
    size_bytes: int
    failures: int


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """One group; `waiters` as they would be served, `lost` maps nodes that cannot be reached to the reason.

    `idle_s`: for how long nobody has held it.
    """

    name: str
    capacity_bytes: int | None
    holder: Holding | None
    waiters: tuple[Waiting, ...]
    places: tuple[Placed, ...]
    lost: Mapping[str, str]
    idle_s: float = 0.0

    @property
    def residents(self) -> tuple[str, ...]:
        """The jobs whose state is in device memory, at rest."""
        return tuple(place.job for place in self.places if place.standing == "resident")


@dataclass(frozen=True, slots=True)
class JobStatus:
    """One job: where its state is by group, what it holds and waits for, and why it is quarantined, if it is."""

    name: str
    owner: str
    weight: float
    places: Mapping[str, str]
    holds: tuple[str, ...]
    waits_for: tuple[str, ...]
    quarantined: str | None


@dataclass(frozen=True, slots=True)
class Status:
    """All of it, at engine time `now_s`. `suspended` are leases whose turn was interrupted and will go on."""

    now_s: float
    groups: Mapping[str, GroupStatus]
    jobs: Mapping[str, JobStatus]
    suspended: tuple[int, ...]


def read_status(state: State, now: int) -> Status:
    """The state at `now`."""
    return Status(
        now_s=now / SECOND_US,
        groups={name: _group(name, group, now) for name, group in state.groups.items()},
        jobs=_jobs(state),
        suspended=tuple(lease.id for lease in state.leases.values() if lease.suspended),
    )


def read_group(state: State, name: str, now: int) -> GroupStatus:
    """One group at `now`."""
    return _group(name, state.groups[name], now)


def read_holder(state: State, name: str, now: int) -> Holding | None:
    """Who has the turn on one group."""
    holder = state.groups[name].holder
    return None if holder is None else _holding(name, holder, now)


def _group(name: str, group: GroupState, now: int) -> GroupStatus:
    line = list(group.queue.ordered())
    if group.selected is not None:
        line.sort(key=lambda request: request is not group.selected)
    places = group.ledger.places.values()
    return GroupStatus(
        name=name,
        capacity_bytes=group.group.capacity_bytes,
        holder=_holding(name, group.holder, now) if group.holder is not None else None,
        waiters=tuple(_waiting(request, request is group.selected, now) for request in line),
        places=tuple(Placed(place.job, place.standing.value, place.size_bytes, place.attempts) for place in places),
        lost=dict(group.lost),
        idle_s=0.0 if group.holder is not None else (now - group.idle_since) / SECOND_US,
    )


def _holding(group: str, lease: Lease, now: int) -> Holding:
    request = lease.request
    held_s = (lease.ran_us + now - lease.since_us) / SECOND_US
    return Holding(
        lease.id, lease.job, request.client, request.number, request.phase, lease.tokens[group], held_s, lease.attached
    )


def _waiting(request: Request, selected: bool, now: int) -> Waiting:
    waited_s = (now - request.arrived_us) / SECOND_US
    return Waiting(
        request.job,
        request.client,
        request.number,
        request.phase,
        request.groups,
        waited_s,
        selected,
        request.attached,
    )


def _jobs(state: State) -> dict[str, JobStatus]:
    """All jobs, in one pass over the groups: with many of both, one for each job would take too long."""
    places: dict[str, dict[str, str]] = {name: {} for name in state.jobs}
    holds: dict[str, list[str]] = {name: [] for name in state.jobs}
    waits: dict[str, list[str]] = {name: [] for name in state.jobs}
    for name, group in state.groups.items():
        for place in group.ledger.places.values():
            if place.job in places:
                places[place.job][name] = place.standing.value
        if group.holder is not None and group.holder.job in holds:
            holds[group.holder.job].append(name)
        for job in group.by_job:
            if job in waits:
                waits[job].append(name)
    return {
        name: JobStatus(
            name=name,
            owner=job.account,
            weight=job.weight,
            places=places[name],
            holds=tuple(holds[name]),
            waits_for=tuple(waits[name]),
            quarantined=state.quarantined.get(name),
        )
        for name, job in state.jobs.items()
    }
