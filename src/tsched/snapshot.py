"""The engine's state as plain data and back (rule J2): what a restart reads before the tail of its log.

`take` and `load` are inverse: an engine that was loaded answers every event as the one that was taken.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from tsched.errors import JournalError
from tsched.estimates import Estimates
from tsched.model import Job
from tsched.residency import Place
from tsched.state import GroupState, State
from tsched.turns import Key, Lease, Request

VERSION = 1


class GroupSnapshot(Struct, forbid_unknown_fields=True):
    token: int
    idle_since: int
    holder: int | None
    selected: Key | None
    hold: tuple[str, int] | None
    lost: dict[str, str]
    places: list[Place]
    ranks: list[tuple[str, int, int]]


class Snapshot(Struct, forbid_unknown_fields=True):
    version: int
    policy: str
    now: int
    next_seq: int
    next_lease: int
    next_op: int
    wake_us: int | None
    jobs: list[Job]
    quarantined: dict[str, str]
    requests: list[Request]
    leases: list[Lease]
    groups: dict[str, GroupSnapshot]
    estimates: Estimates
    memory: dict[str, dict[str, int]]


def take(state: State) -> dict[str, Any]:
    """The whole state, JSON-able."""
    snapshot = Snapshot(
        VERSION,
        state.policy.name,
        state.now,
        state.next_seq,
        state.next_lease,
        state.next_op,
        state.wake_us,
        list(state.jobs.values()),
        state.quarantined,
        sorted(state.requests.values(), key=lambda request: request.seq),
        list(state.leases.values()),
        {name: _group(group) for name, group in state.groups.items()},
        state.estimates,
        state.policy.memory,
    )
    plain: dict[str, Any] = msgspec.to_builtins(snapshot)
    return plain


def load(state: State, data: dict[str, Any]) -> None:
    """Fill a fresh state, of the same groups, from what `take` gave; raises `JournalError` where it does not fit."""
    version = data.get("version")
    if version != VERSION:
        raise JournalError(
            f"the snapshot is of version {version!r}, this tsched reads {VERSION}: use the one that wrote it"
        )
    try:
        snapshot = msgspec.convert(data, Snapshot)
    except msgspec.ValidationError as error:
        raise JournalError(f"the snapshot is not one of version {VERSION}: {error}") from error
    missing = set(snapshot.groups) - set(state.groups)
    if missing:
        raise JournalError(
            f"the log knows group {min(missing)!r}, which is not configured: name it, or start a new log"
        )
    state.now, state.wake_us = snapshot.now, snapshot.wake_us
    state.next_seq, state.next_lease, state.next_op = snapshot.next_seq, snapshot.next_lease, snapshot.next_op
    state.jobs = {job.name: job for job in snapshot.jobs}
    state.quarantined = snapshot.quarantined
    state.estimates = snapshot.estimates
    if snapshot.policy == state.policy.name:
        state.policy.memory = snapshot.memory
    _load_turns(state, snapshot)
    for name, group in snapshot.groups.items():
        _load_group(state, state.groups[name], group)


def _group(group: GroupState) -> GroupSnapshot:
    waiting = sorted((request for line in group.by_job.values() for request in line), key=lambda each: each.seq)
    ranks = [(*request.key, rank) for request in waiting if (rank := group.queue.rank_of(request)) is not None]
    return GroupSnapshot(
        group.token,
        group.idle_since,
        group.holder.id if group.holder is not None else None,
        group.selected.key if group.selected is not None else None,
        group.hold,
        group.lost,
        list(group.ledger.places.values()),
        ranks,
    )


def _load_turns(state: State, snapshot: Snapshot) -> None:
    same_policy = snapshot.policy == state.policy.name
    ranks: dict[Key, dict[str, int]] = {}
    for name, group in snapshot.groups.items():
        for client, number, rank in group.ranks if same_policy else ():
            ranks.setdefault((client, number), {})[name] = rank
    state.leases = {lease.id: lease for lease in snapshot.leases}
    state.holding = {lease.request.key: lease for lease in snapshot.leases}
    for request in snapshot.requests:
        if request.resumes is not None:
            request = state.leases[request.resumes].request
        state.readmit(request, ranks.get(request.key, {}))


def _load_group(state: State, group: GroupState, snapshot: GroupSnapshot) -> None:
    group.token, group.idle_since, group.hold = snapshot.token, snapshot.idle_since, snapshot.hold
    group.holder = state.leases[snapshot.holder] if snapshot.holder is not None else None
    group.selected = state.requests[snapshot.selected] if snapshot.selected is not None else None
    group.lost = snapshot.lost
    for place in snapshot.places:
        group.ledger.add(place)
        if place.job in state.jobs:
            group.ledger.resize(state.jobs[place.job])
        if place.pending:
            state.moves[place.op] = (group.group.name, place.job)
