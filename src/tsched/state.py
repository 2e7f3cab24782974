"""What is: the engine's state, and how events and commands change it.

`happened` applies an event, `done` a command; neither decides anything. The state after a log of both is the same
whoever decided them, so a restart replays its log even where a newer engine would decide otherwise (rule J3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
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
from tsched.estimates import Estimates
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
from tsched.model import Group, Job
from tsched.policies import Policy
from tsched.residency import Ledger, Place, Standing
from tsched.turns import Key, Lease, Request
from tsched.waiting import WaitQueue

BACKOFF_US = 1_000_000
BACKOFF_MAX_US = 60_000_000
SWITCH = "\x00switch"


class GroupState:
    """One group: who holds it, who waits, who is next, and who is in its memory."""

    __slots__ = (
        "by_job",
        "group",
        "hold",
        "holder",
        "idle_since",
        "ledger",
        "lost",
        "nested",
        "queue",
        "reserving",
        "selected",
        "timed",
        "token",
        "uneasy",
    )
    uneasy: dict[str, None]
    """Jobs whose state here may need care: a note to self of the engine, rebuilt after a restart."""

    def __init__(self, group: Group, policy: Policy) -> None:
        self.group = group
        self.ledger = Ledger(group)
        self.queue = WaitQueue(group.name, policy)
        self.holder: Lease | None = None
        self.selected: Request | None = None
        self.reserving: list[Request] = []
        self.nested: list[Request] = []
        self.by_job: dict[str, list[Request]] = {}
        self.uneasy = {}
        self.lost: dict[str, str] = {}
        self.hold: tuple[str, int] | None = None
        self.token = 0
        self.idle_since = 0
        self.timed = any(limit is not None for limit in (group.lease_ttl_us, group.max_hold_us, group.max_phase_us))


class State:
    """Everything that the engine knows. Read it; only `happened` and `done` write it."""

    def __init__(self, groups: Iterable[Group], policy: Policy, reattach_us: int) -> None:
        self.policy = policy
        self.reattach_us = reattach_us
        self.now = 0
        self.groups = {group.name: GroupState(group, policy) for group in groups}
        self.jobs: dict[str, Job] = {}
        self.quarantined: dict[str, str] = {}
        self.requests: dict[Key, Request] = {}
        self.leases: dict[int, Lease] = {}
        self.holding: dict[Key, Lease] = {}
        self.moves: dict[int, tuple[str, str]] = {}
        self.estimates = Estimates()
        self.next_seq = 1
        self.next_lease = 1
        self.next_op = 1
        self.wake_us: int | None = None
        self.dirty: dict[str, None] = {}
        """Groups about which something changed: a note to self of the engine, who empties it."""

    # ------------------------------------------------------------------ events

    def happened(self, event: Event, now: int) -> str:
        """Apply what happened; answers why nothing changed, or an empty string."""
        if now > self.now:
            self.now = now
        return _HAPPENED[type(event)](self, event)

    def _requested(self, event: PhaseRequested) -> str:
        key = (event.client, event.request)
        if key in self.requests or key in self.holding:
            self._attach(key)
            return ""
        job = self.jobs.get(event.job)
        request = Request(
            key=key,
            client=event.client,
            number=event.request,
            job=event.job,
            owner=job.account if job else event.job,
            weight_milli=job.weight_milli if job else 1000,
            groups=event.groups,
            phase=event.phase,
            estimate_us=self.estimates.estimate(event.job, event.phase, event.estimate_us),
            remaining_us=event.remaining_us,
            arrived_us=self.now,
            seq=self.next_seq,
            within=event.within,
            ttl_us=event.ttl_us,
        )
        self.next_seq += 1
        self.requests[key] = request
        named = set(event.groups)
        if job is not None and len(named) == len(event.groups) and self.groups.keys() >= named:
            self._enqueue(request)
        return ""

    def _attach(self, key: Key) -> None:
        """The client came back for its request, or for the lease that it became (rule J5)."""
        if key in self.requests:
            self.requests[key].attached = True
        if key in self.holding:
            lease = self.holding[key]
            lease.attached = lease.request.attached = True
            lease.due_us = self._due(lease.request)

    def _enqueue(self, request: Request, ranks: dict[str, int] | None = None) -> None:
        for name in request.groups:
            group = self.groups[name]
            self.dirty[name] = None
            group.queue.push(request, ranks.get(name) if ranks else None)
            line = group.by_job.get(request.job)
            if line is None:
                line = group.by_job[request.job] = []
            line.append(request)
            if len(line) > 1 and line[-2].seq > request.seq:
                line.sort(key=_by_arrival)
            place = group.ledger.places.get(request.job)
            if place is not None and place.left_us:
                place.away_us = self.now - place.left_us
                place.left_us = 0
        if request.within is not None:
            parent = self.leases.get(request.within)
            if parent is not None and parent.nested is None:
                parent.nested = request.key
            for name in request.groups:
                self.groups[name].nested.append(request)
                self.groups[name].nested.sort(key=_by_arrival)

    def readmit(self, request: Request, ranks: dict[str, int]) -> None:
        """Put a request of a snapshot back where it stood."""
        self.requests[request.key] = request
        self._enqueue(request, ranks)
        if request.reserved_seq is not None:
            self._reserve(request)

    def _reserve(self, request: Request) -> None:
        for name in request.groups:
            self.groups[name].reserving.append(request)
            self.groups[name].reserving.sort(key=lambda each: each.reserved_seq or 0)

    def _dequeue(self, request: Request) -> None:
        """The request leaves every line; groups that were being made ready for it choose again."""
        del self.requests[request.key]
        for name in request.groups:
            group = self.groups.get(name)
            if group is None or request not in group.queue:
                continue
            self.dirty[name] = None
            group.queue.remove(request)
            line = group.by_job[request.job]
            if len(line) == 1:
                del group.by_job[request.job]
            else:
                line.remove(request)
            if group.selected is request:
                group.selected = None
            if request.reserved_seq is not None:
                group.reserving.remove(request)
            if request.within is not None:
                group.nested.remove(request)
        if request.within is not None:
            parent = self.leases.get(request.within)
            if parent is not None and parent.nested == request.key:
                parent.nested = None

    def _cancelled(self, event: RequestCancelled) -> str:
        key = (event.client, event.request)
        request = self.requests.get(key)
        if request is None:
            return "no such request is waiting"
        self._dequeue(request)
        if request.resumes is not None:
            self._end(self.leases[request.resumes])
        return ""

    def _yielded(self, event: PhaseYielded) -> str:
        lease = self.leases.get(event.lease)
        if lease is None:
            return f"lease {event.lease} has ended"
        if event.groups and not any(name in lease.tokens for name in event.groups):
            return f"lease {event.lease} does not hold {', '.join(event.groups)}"
        if lease.suspended:
            self._dequeue(self.requests[lease.request.key])
        self._give_back(lease, event.groups or tuple(lease.tokens))
        if not lease.tokens:
            self.estimates.observe(lease.job, lease.request.phase, self._length(lease))
        return ""

    def _length(self, lease: Lease) -> int:
        """How long the turn ran so far, suspensions not counted."""
        return lease.ran_us + (0 if lease.suspended else self.now - lease.since_us)

    def _note_overrun(self, lease: Lease, length: int) -> None:
        """A backfilled turn that outlasted its estimate is the last before its reservation (rule E10)."""
        if lease.backfills is not None and length > lease.request.estimate_us:
            reservation = self.requests.get(lease.backfills)
            if reservation is not None:
                reservation.overrun = True

    def _give_back(self, lease: Lease, groups: Iterable[str], unsafe: bool = False) -> None:
        length = self._length(lease)
        for name in groups:
            if lease.tokens.pop(name, None) is None:
                continue
            group = self.groups[name]
            self.dirty[name] = None
            if group.holder is lease:
                group.holder = None
                group.idle_since = self.now
            self.policy.released(lease.request, name, length)
            group.queue.recharge(lease.request)
            place = group.ledger.places.get(lease.job)
            if place is not None:
                place.left_us = self.now
                if unsafe:
                    group.ledger.set_unsafe(place, True)
                    group.uneasy[lease.job] = None
        if not lease.tokens:
            self._note_overrun(lease, length)
            self._end(lease)

    def _end(self, lease: Lease) -> None:
        del self.leases[lease.id]
        del self.holding[lease.request.key]

    def _renewed(self, event: LeaseRenewed) -> str:
        lease = self.leases.get(event.lease)
        if lease is None:
            return f"lease {event.lease} has ended"
        lease.attached = lease.request.attached = True
        lease.due_us = self._due(lease.request)
        return ""

    def _due(self, request: Request) -> int | None:
        """When a lease granted or renewed now ends by itself."""
        limit = request.ttl_us
        for name in request.groups:
            ttl = self.groups[name].group.lease_ttl_us
            if ttl is not None and (limit is None or ttl < limit):
                limit = ttl
        if not request.attached:
            limit = self.reattach_us if limit is None else min(limit, self.reattach_us)
        return None if limit is None else self.now + limit

    def _moved(self, event: Parked | Restored | Discarded | MoveFailed) -> str:
        op, node = event.op, event.node
        where = self.moves.get(op)
        if where is None:
            return f"operation {op} is over"
        group = self.groups[where[0]]
        place = group.ledger.places[where[1]]
        if node not in place.pending:
            return f"node {node!r} of operation {op} has answered"
        self.dirty[where[0]] = None
        place.pending.remove(node)
        if type(event) is MoveFailed:
            place.failed.append(node)
        if not place.pending:
            del self.moves[op]
            group.uneasy[place.job] = None
            if place.failed:
                place.retry_us = self.now + min(BACKOFF_MAX_US, BACKOFF_US << min(place.attempts, 10))
            else:
                self._arrived(group, place)
        return ""

    def _arrived(self, group: GroupState, place: Place) -> None:
        """Every node confirmed the move."""
        place.attempts = 0
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

    def _added(self, event: JobAdded) -> str:
        job = event.job
        if job.name in self.jobs:
            return f"job {job.name!r} is registered already"
        self.jobs[job.name] = job
        return ""

    def _updated(self, event: JobUpdated) -> str:
        job = event.job
        if job.name not in self.jobs:
            return f"job {job.name!r} is not registered"
        self.jobs[job.name] = job
        for name, group in self.groups.items():
            group.ledger.resize(job)
            self.dirty[name] = None
        return ""

    def _gone(self, event: JobLeft | JobLost) -> str:
        name = event.job
        if self.jobs.pop(name, None) is None:
            return f"job {name!r} is not registered"
        self.quarantined.pop(name, None)
        self.estimates.forget(name)
        for group_name, group in self.groups.items():
            self._forget_hold(group, name)
            place = group.ledger.places.get(name)
            if place is not None:
                place.doomed = True
                group.uneasy[name] = None
                self.dirty[group_name] = None
        return ""

    def _forget_hold(self, group: GroupState, job: str) -> None:
        if group.hold is not None and group.hold[0] == job:
            group.hold = None
            self.dirty[group.group.name] = None

    def _readmitted(self, event: JobReadmitted) -> str:
        known = self.quarantined.pop(event.job, None) is not None
        return "" if known else f"job {event.job!r} is not quarantined"

    def _node(self, event: NodeLost | NodeReturned) -> str:
        name, node = event.group, event.node
        group = self.groups.get(name)
        if group is None or node not in group.group.nodes:
            return f"group {name!r} has no node {node!r}"
        self.dirty[name] = None
        if isinstance(event, NodeLost):
            group.lost[node] = event.reason
            self.dirty.update((other, None) for request in group.reserving for other in request.groups)
            return ""
        if group.lost.pop(node, None) is None:
            return f"node {node!r} was not lost"
        self.dirty.update((other, None) for request in group.queue.ordered() for other in request.groups)
        for place in group.ledger.places.values():
            if place.failed:
                place.attempts = 0
                place.retry_us = self.now
                group.uneasy[place.job] = None
        return ""

    def _evicted(self, event: EvictionForced) -> str:
        name, job = event.group, event.job
        group = self.groups.get(name)
        if group is None or job not in group.ledger.places:
            return f"job {job!r} has no state on group {name!r}"
        place = group.ledger.places[job]
        self.moves.pop(place.op, None)
        self.dirty[name] = None
        group.ledger.remove(job)
        group.uneasy.pop(job, None)
        return ""

    def _woke(self, event: Woke) -> str:
        self.wake_us = None
        return ""

    def _restarted(self, event: Restarted) -> str:
        self.dirty.update(dict.fromkeys(self.groups))
        self.wake_us = None
        for request in self.requests.values():
            request.attached = False
        for lease in self.leases.values():
            lease.attached = lease.request.attached = False
            if not lease.suspended:
                lease.due_us = self._due(lease.request)
        return ""

    # ---------------------------------------------------------------- commands

    def done(self, command: Command) -> None:
        """Apply a decision."""
        _DONE[type(command)](self, command)

    def _refused(self, refuse: Refuse) -> None:
        request = self.requests.get((refuse.client, refuse.request))
        if request is not None:
            self._dequeue(request)
            if request.resumes is not None and request.resumes in self.leases:
                self._end(self.leases[request.resumes])

    def _revoked(self, revoke: Revoke) -> None:
        self._give_back(self.leases[revoke.lease], revoke.groups, unsafe=True)

    def _held(self, hold: Hold) -> None:
        self.groups[hold.group].hold = (hold.job, hold.until_us)

    def _quarantined(self, quarantine: Quarantine) -> None:
        self.quarantined[quarantine.job] = quarantine.reason
        for group in self.groups.values():
            self._forget_hold(group, quarantine.job)

    def _will_wake(self, wake: WakeAt) -> None:
        self.wake_us = wake.when_us

    def _ignored(self, ignore: Ignore) -> None:
        pass

    def _granted(self, grant: Grant) -> None:
        lease = self.leases.get(grant.lease)
        if lease is not None and not lease.suspended:
            return
        request = self.requests[grant.client, grant.request]
        self._count_skips(request)
        timed = not request.attached or request.ttl_us is not None
        for name in request.groups:
            timed = timed or self.groups[name].timed
        ranks = self._ranks(request) if timed else {}
        self._dequeue(request)
        now = self.now
        if lease is None:
            lease = Lease(grant.lease, request, dict(grant.tokens), now, now)
            lease.restored, lease.ranks, lease.timed = grant.restored, ranks, timed
            lease.backfills = grant.backfills
            self.leases[lease.id] = lease
            self.holding[request.key] = lease
            self.next_lease = grant.lease + 1
        else:
            lease.suspended = False
            lease.since_us = now
            lease.tokens = dict(grant.tokens)
        lease.attached = request.attached
        if timed:
            lease.due_us = self._due(request)
            lease.ends_us = self._ends(lease)
        for name, token in grant.tokens.items():
            self._occupy(self.groups[name], lease, token, grant.restored)

    def _ends(self, lease: Lease) -> int | None:
        """When a lease granted or resumed now has held for too long, renewed or not (rule E12)."""
        end: int | None = None
        for name in lease.tokens:
            hold = self.groups[name].group.max_hold_us
            if hold is not None:
                late = self.now + hold - lease.ran_us
                end = late if end is None else min(end, late)
        return end

    def _ranks(self, request: Request) -> dict[str, int]:
        """The place in line that a turn keeps if it may be suspended (rule E14)."""
        ranks: dict[str, int] = {}
        for name in request.groups:
            group = self.groups[name]
            if group.group.max_phase_us is not None and (rank := group.queue.rank_of(request)) is not None:
                ranks[name] = rank
        return ranks

    def _count_skips(self, request: Request) -> None:
        """Those who stood before this one were passed over once more (rules P7, P8, E10)."""
        for name in request.groups:
            group = self.groups[name]
            if self.policy.window == 1:
                head = group.queue.head()
                if head is not None and head is not request:
                    head.skips += 1
                continue
            for other in group.queue.first(self.policy.window):
                if other is request:
                    break
                other.skips += 1

    def _occupy(self, group: GroupState, lease: Lease, token: int, restored: bool) -> None:
        request = lease.request
        name = group.group.name
        ledger = group.ledger
        place = ledger.places.get(request.job)
        if place is None:
            ledger.add(Place(request.job, Standing.RESIDENT, ledger.size(self.jobs[request.job])))
        else:
            place.restored = place.prefetched = False
            place.left_us = 0
        switch = max(0, self.now - max(group.idle_since, request.arrived_us)) if restored else 0
        if restored:
            self.estimates.observe(SWITCH, name, switch)
        group.holder = lease
        group.token = token
        group.hold = None
        if lease.ran_us == 0:
            self.policy.granted(request, name, switch)
            group.queue.recharge(request)

    def _selected(self, select: Select) -> None:
        request = self.requests[select.client, select.request]
        self.groups[select.group].selected = request
        if len(request.groups) > 1 and request.reserved_seq is None:
            request.reserved_seq = self.next_seq
            self.next_seq += 1
            self._reserve(request)

    def _moving(self, move: Park | Restore | Discard) -> None:
        op, job, group = move.op, move.job, self.groups[move.group]
        ledger = group.ledger
        place = ledger.places[job]
        standing = _STANDING[type(move)]
        if place.op != op:
            self.moves.pop(place.op, None)
            place.attempts = place.attempts + 1 if place.standing is standing else 1
            place.failed = []
        place.standing = standing
        place.op, place.token = op, move.token
        place.pending = list(move.nodes)
        group.token = max(group.token, move.token)
        self.next_op = max(self.next_op, op + 1)
        self.moves[op] = (group.group.name, job)
        if standing is Standing.RESTORING:
            ledger.set_on_device(place, True)
            place.prefetched = group.selected is None or group.selected.job != job

    def _suspended(self, suspend: Suspend) -> None:
        lease = self.leases[suspend.lease]
        lease.suspended = True
        lease.ran_us += self.now - lease.since_us
        lease.due_us = lease.ends_us = None
        (name,) = lease.tokens
        group = self.groups[name]
        group.holder = None
        group.idle_since = self.now
        place = group.ledger.places[lease.job]
        group.ledger.set_unsafe(place, True)
        group.uneasy[lease.job] = None
        request = lease.request
        request.groups = (name,)
        request.resumes = lease.id
        request.skips = 0
        request.reserved_seq = None
        self.requests[request.key] = request
        self._enqueue(request, lease.ranks)


def _by_arrival(request: Request) -> int:
    return request.seq


_STANDING = {Park: Standing.PARKING, Restore: Standing.RESTORING, Discard: Standing.DISCARDING}

_HAPPENED: dict[type[Event], Callable[[State, Any], str]] = {
    PhaseRequested: State._requested,
    PhaseYielded: State._yielded,
    RequestCancelled: State._cancelled,
    LeaseRenewed: State._renewed,
    Parked: State._moved,
    Restored: State._moved,
    Discarded: State._moved,
    MoveFailed: State._moved,
    JobAdded: State._added,
    JobUpdated: State._updated,
    JobLeft: State._gone,
    JobLost: State._gone,
    JobReadmitted: State._readmitted,
    NodeLost: State._node,
    NodeReturned: State._node,
    EvictionForced: State._evicted,
    Restarted: State._restarted,
    Woke: State._woke,
}

_DONE: dict[type[Command], Callable[[State, Any], None]] = {
    Grant: State._granted,
    Refuse: State._refused,
    Select: State._selected,
    Park: State._moving,
    Restore: State._moving,
    Discard: State._moving,
    Revoke: State._revoked,
    Suspend: State._suspended,
    Hold: State._held,
    Quarantine: State._quarantined,
    WakeAt: State._will_wake,
    Ignore: State._ignored,
}
