"""What is: everything that the engine knows, and the few ways in which requests and leases come and go.

`tsched.happened` applies events to it, `tsched.decided` commands; nothing else writes it, and neither decides anything.
The state after a log of both is the same whoever decided them, so a restart replays its log even where a newer
engine would decide otherwise (rule J3).
"""

from __future__ import annotations

from collections.abc import Iterable

from tsched.estimates import Estimates
from tsched.model import Group, Job
from tsched.policies import Policy
from tsched.residency import Ledger
from tsched.turns import Key, Lease, Request
from tsched.waiting import WaitQueue


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
    """Everything that the engine knows. Read it; only `tsched.happened` and `tsched.decided` write it."""

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

    def enqueue(self, request: Request, ranks: dict[str, int] | None = None) -> None:
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
        self.enqueue(request, ranks)
        if request.reserved_seq is not None:
            self.reserve(request)

    def reserve(self, request: Request) -> None:
        for name in request.groups:
            self.groups[name].reserving.append(request)
            self.groups[name].reserving.sort(key=lambda each: each.reserved_seq or 0)

    def dequeue(self, request: Request) -> None:
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

    def give_back(self, lease: Lease, groups: Iterable[str], unsafe: bool = False) -> None:
        length = self.length(lease)
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
            self.end(lease)

    def length(self, lease: Lease) -> int:
        """How long the turn ran so far, suspensions not counted."""
        return lease.ran_us + (0 if lease.suspended else self.now - lease.since_us)

    def _note_overrun(self, lease: Lease, length: int) -> None:
        """A backfilled turn that outlasted its estimate is the last before its reservation (rule E10)."""
        if lease.backfills is not None and length > lease.request.estimate_us:
            reservation = self.requests.get(lease.backfills)
            if reservation is not None:
                reservation.overrun = True

    def end(self, lease: Lease) -> None:
        del self.leases[lease.id]
        del self.holding[lease.request.key]

    def due(self, request: Request) -> int | None:
        """When a lease granted or renewed now ends by itself."""
        limit = request.ttl_us
        for name in request.groups:
            ttl = self.groups[name].group.lease_ttl_us
            if ttl is not None and (limit is None or ttl < limit):
                limit = ttl
        if not request.attached:
            limit = self.reattach_us if limit is None else min(limit, self.reattach_us)
        return None if limit is None else self.now + limit

    def forget_hold(self, group: GroupState, job: str) -> None:
        if group.hold is not None and group.hold[0] == job:
            group.hold = None
            self.dirty[group.group.name] = None


def _by_arrival(request: Request) -> int:
    return request.seq
