"""The scheduling engine: events in, commands out, nothing else.

`handle(event, now)` is a pure state machine: no clock, no randomness, no I/O, and no exception for what the world
or a client does wrong. It applies the event to the state, then decides; every decision is a command, applied at
once and returned. `apply` replays a record of both without deciding (rule J3).

How one group works, all of it in `_advance`:

- *Held.* Nothing to do but to bring in the next job's state, where it fits beside the holder (prefetch).
- *Idle.* The policy picks a request; what stands between it and its turn is memory. State that is parked is
  restored as soon as it fits; when it does not, others are parked, the fewest that suffice. The request is granted
  when its state is there, its working memory fits, and nobody unsafe is left on the devices.
- *Reserved.* A request for several groups takes each as it comes free, and is granted all at once; meanwhile a
  short phase of a resident job may slip in (backfill).

`_tend` looks after states whose move failed, whose job is gone, or whose holder lost its lease: retry, then
quarantine of that job, then discard, until the memory was seen free. All numbered rules are in docs/rules.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tsched import admission, decided, eviction, happened, snapshot, succession, waitfor
from tsched.alarms import Alarms
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
from tsched.events import (
    Event,
    EvictionForced,
    JobLeft,
    JobLost,
    PhaseRequested,
    PhaseYielded,
    Restarted,
    Woke,
)
from tsched.model import Group
from tsched.policies import MAX_WINDOW, Policy
from tsched.residency import Place, Standing
from tsched.state import GroupState, State
from tsched.turns import Key, Lease, Request

REATTACH_US = 60_000_000


class Engine:
    """Decides who holds which group and whose state is in memory; see the module's text."""

    def __init__(self, groups: Iterable[Group], policy: Policy, *, reattach_us: int = REATTACH_US) -> None:
        self.policy = policy
        self.state = State(groups, policy, reattach_us)
        self._out: list[Command] = []
        self._alarms = Alarms()

    # ----------------------------------------------------------------- surface

    def handle(self, event: Event, now: int) -> list[Command]:
        """Take note of what happened at `now` (microseconds, never less than before) and answer what to do."""
        self._out = []
        state = self.state
        ignored = happened.apply(state, event, now)
        if ignored:
            self._do(Ignore(ignored))
            return self._out
        reaction = _REACTIONS.get(type(event))
        if reaction is not None:
            reaction(self, event)
        dirty = state.dirty
        while dirty:
            name, _ = dirty.popitem()
            self._advance(name, state.groups[name])
        if self._alarms:
            self._set_alarm()
        return self._out

    def apply(self, event: Event, commands: Sequence[Command], now: int) -> None:
        """Replay one record: the state changes as it did then, whatever would be decided today."""
        happened.apply(self.state, event, now)
        for command in commands:
            decided.apply(self.state, command)

    def snapshot(self) -> dict[str, Any]:
        """The whole state as JSON-able data, between two events."""
        return snapshot.take(self.state)

    @classmethod
    def restore(
        cls, data: dict[str, Any], groups: Iterable[Group], policy: Policy, *, reattach_us: int = REATTACH_US
    ) -> Engine:
        """An engine as it was when `data` was taken; raises `JournalError` where it does not fit `groups`."""
        engine = cls(groups, policy, reattach_us=reattach_us)
        snapshot.load(engine.state, data)
        return engine

    def wake_at(self) -> int | None:
        """When the next `Woke` is due."""
        return self.state.wake_us

    # --------------------------------------------------------------- reactions

    def _do(self, command: Command) -> None:
        decided.apply(self.state, command)
        self._out.append(command)

    def _touch(self, names: Iterable[str]) -> None:
        for name in names:
            self.state.dirty[name] = None

    def _asked(self, event: PhaseRequested) -> None:
        state = self.state
        key = (event.client, event.request)
        request = state.requests.get(key)
        lease = state.holding.get(key)
        if lease is not None and not lease.suspended:
            self._do(_grant(lease, lease.tokens, waited_us=lease.granted_us - lease.request.arrived_us))
            return
        if request is None or request.seq != state.next_seq - 1:
            return
        refusal = admission.refusal(self.state, request)
        if refusal is not None:
            self._refuse(request, *refusal)
        elif request.within is not None:
            self._touch(name for name, group in state.groups.items() if group.nested or group.reserving)

    def _refuse(self, request: Request, code: str, detail: str) -> None:
        self._do(Refuse(request.client, request.number, code, detail))

    def _revoke(self, lease: Lease, groups: tuple[str, ...], reason: str) -> None:
        """End a turn; the job may still compute, so it must be seen off before the next grant (rule E12)."""
        nested, waiting = lease.nested, self.state.requests.get(lease.request.key)
        if lease.suspended and waiting is not None:
            self._refuse(waiting, "lease_lost", reason)
            return
        self._do(Revoke(lease.id, groups, reason))
        if nested is not None and lease.id not in self.state.leases:
            self._refuse(
                self.state.requests[nested], "unknown_lease", f"the lease that it asked within ended: {reason}"
            )

    def _bereaved(self, event: JobLeft | JobLost) -> None:
        """Nothing of a job that is gone waits or holds on."""
        state, job = self.state, event.job
        detail = f"job {job!r} has left"
        if isinstance(event, JobLost):
            detail = f"job {job!r} was lost" + (f": {event.reason}" if event.reason else "")
        for request in [request for request in state.requests.values() if request.job == job]:
            self._refuse(request, "job_left", detail)
        for lease in [lease for lease in state.leases.values() if lease.job == job]:
            self._revoke(lease, tuple(lease.tokens), detail)

    def _evicted(self, event: EvictionForced) -> None:
        holder = self.state.groups[event.group].holder
        reason = f"an operator evicted job {event.job!r} from group {event.group!r}"
        if holder is not None and holder.job == event.job:
            self._revoke(holder, (event.group,), reason)
        for lease in [lease for lease in self.state.leases.values() if lease.suspended and lease.job == event.job]:
            if event.group in lease.tokens:
                self._revoke(lease, (event.group,), reason)

    def _restarted(self, event: Restarted) -> None:
        """Ask again for every move under way, and let clients come back (rules J4, J5)."""
        state = self.state
        self._alarms.clear()
        for name, group in state.groups.items():
            for place in group.ledger.places.values():
                group.uneasy[place.job] = None
                if place.pending:
                    self._do(self._move(_KIND[place.standing], name, place, again=True))
            if group.hold is not None:
                self._alarms.at(group.hold[1], name)
        for lease in state.leases.values():
            self._alarms.lease(self.state, lease)

    # ------------------------------------------------------------------ alarms

    def _set_alarm(self) -> None:
        first = self._alarms.first(self.state)
        if first is not None and (self.state.wake_us is None or first < self.state.wake_us):
            self._do(WakeAt(first))

    def _ring(self, event: Woke) -> None:
        while (what := self._alarms.due(self.state.now)) is not None:
            if isinstance(what, int):
                self._look_at(self.state.leases.get(what))
            else:
                self._touch([what])

    def _look_at(self, lease: Lease | None) -> None:
        if lease is None or lease.suspended:
            return
        now = self.state.now
        groups = tuple(lease.tokens)
        if lease.ends_us is not None and lease.ends_us <= now:
            self._revoke(lease, groups, f"job {lease.job!r} held {', '.join(groups)} longer than max_hold_us allows")
        elif lease.due_us is not None and lease.due_us <= now:
            self._revoke(
                lease, groups, f"the lease of job {lease.job!r} on {', '.join(groups)} was not renewed in time"
            )
        else:
            self._touch(groups)
            self._alarms.lease(self.state, lease)

    # -------------------------------------------------------------- one group

    def _advance(self, name: str, group: GroupState) -> None:
        if group.uneasy:
            self._tend(name, group)
        if group.lost:
            return
        if group.holder is not None:
            self._while_held(name, group, group.holder)
            return
        request = succession.next_request(self.state, group)
        if request is None:
            return
        if self._grantable(request):
            self._grant(request)
        elif group.ledger.never_fits(self.state.jobs[request.job]):
            self._refuse(request, "never_fits", admission.too_large(self.state, name, request.job))
        else:
            if group.selected is not request:
                self._do(Select(name, request.client, request.number))
                self._reconsider(request)
            self._make_ready(name, group, request)
            if len(request.groups) > 1:
                self._backfill(name, group, request)

    def _reconsider(self, request: Request) -> None:
        """Somebody is next on a group: a reservation takes its other groups, nested requests may go before it."""
        if len(request.groups) > 1:
            self._touch(request.groups)
            self._touch(name for name, group in self.state.groups.items() if group.nested)

    def _grantable(self, request: Request) -> bool:
        """Every group is this request's to take, its state is there, and nobody unsafe is left (rule E5)."""
        job = self.state.jobs[request.job]
        for name in request.groups:
            group = self.state.groups[name]
            ledger = group.ledger
            if group.holder is not None or ledger.unsafe or group.lost:
                return False
            if (
                group.selected is not request
                and len(request.groups) > 1
                and succession.next_request(self.state, group) is not request
            ):
                return False
            place = ledger.places.get(request.job)
            if place is not None and (place.standing is not Standing.RESIDENT or place.doomed):
                return False
            if ledger.used + ledger.needed(job) > ledger.capacity:
                return False
        return True

    def _grant(self, request: Request, backfills: Key | None = None) -> None:
        state = self.state
        restored = False
        tokens: dict[str, int] = {}
        for name in request.groups:
            group = state.groups[name]
            tokens[name] = group.token + 1
            place = group.ledger.places.get(request.job)
            restored = restored or (place is not None and place.restored)
        lease_id = request.resumes or state.next_lease
        waited = state.now - request.arrived_us
        client, number = request.key
        self._do(Grant(lease_id, client, number, request.job, tokens, request.phase, waited, restored, backfills))
        if state.leases[lease_id].timed:
            self._alarms.lease(self.state, state.leases[lease_id])

    def _make_ready(self, name: str, group: GroupState, request: Request) -> None:
        """Bring the request's state in, and others' out where memory is short (rules R3 to R6)."""
        ledger = group.ledger
        job = self.state.jobs[request.job]
        for victim in eviction.victims(self.state, group, job):
            self._do(self._move(Park, name, victim))
        place = ledger.places.get(job.name)
        if place is None or place.standing is not Standing.PARKED or place.doomed:
            return
        if ledger.fits(place.size_bytes):
            self._do(self._move(Restore, name, place))

    def _backfill(self, name: str, group: GroupState, reservation: Request) -> None:
        """Let a resident job's short phase in while the reservation waits for other groups (rule E10)."""
        held = waitfor.blockers(self.state, reservation)
        if not held or reservation.overrun or group.ledger.unsafe:
            return
        ends = max(lease.since_us - lease.ran_us + lease.request.estimate_us for lease in held)
        for request in self._resident_waiters(group):
            fits = group.ledger.fits(group.ledger.needed(self.state.jobs[request.job]))
            if fits and len(request.groups) == 1 and self.state.now + request.estimate_us <= ends:
                self._grant(request, reservation.key)
                return

    def _resident_waiters(self, group: GroupState) -> list[Request]:
        waiting = (r for place in group.ledger.places.values() for r in group.by_job.get(place.job, ()))
        return sorted((r for r in waiting if succession.is_resident(group, r.job)), key=lambda request: request.seq)

    def _while_held(self, name: str, group: GroupState, holder: Lease) -> None:
        """Suspend a holder that is over its time, or bring in who is next beside it (rules E13, R7)."""
        if group.group.max_phase_us is None and (group.ledger.exclusive or not group.group.prefetch):
            return
        head = group.queue.head()
        if head is None:
            return
        if self._may_suspend(group, holder):
            others = (r for r in group.queue.first(MAX_WINDOW) if r.job != holder.job and len(r.groups) == 1)
            successor = next(others, None)
            if successor is not None:
                self._do(Suspend(holder.id))
                self._do(Select(name, successor.client, successor.number))
                self._touch([name])
                return
        place = group.ledger.places.get(head.job)
        if not group.group.prefetch or head.job == holder.job:
            return
        if place is None or place.standing is not Standing.PARKED or place.doomed:
            return
        if any(other.standing is Standing.RESTORING for other in group.ledger.places.values()):
            return
        working = group.ledger.working(self.state.jobs[holder.job]) if holder.job in self.state.jobs else 0
        if group.ledger.fits(place.size_bytes + working):
            self._do(self._move(Restore, name, place))

    def _may_suspend(self, group: GroupState, holder: Lease) -> bool:
        limit = group.group.max_phase_us
        if limit is None or not group.group.suspendable or self.state.now < holder.since_us + limit:
            return False
        if len(holder.tokens) > 1 or holder.nested is not None or group.reserving:
            return False
        if holder.job in self.state.quarantined:
            return False
        return not any(lease.job == holder.job for lease in self.state.leases.values() if lease is not holder)

    def _consider_hold(self, event: PhaseYielded) -> None:
        """Keep a group for the job that just left, if it is back before a switch would pay (rule P8)."""
        lease = self.state.leases.get(event.lease)
        if lease is not None and lease.timed:
            self._alarms.lease(self.state, lease)
        limit = self.policy.linger_us
        for name in list(self.state.dirty) if limit else ():
            group = self.state.groups[name]
            head = group.queue.head()
            job = eviction.last_to_leave(group)
            if group.holder or head is None or head.skips or job is None or succession.is_resident(group, head.job):
                continue
            away = group.ledger.places[job].away_us
            switch = self.state.estimates.switch(name)
            if away is not None and switch and away <= min(switch, limit):
                until = self.state.now + min(switch, limit)
                self._do(Hold(name, job, until))
                self._alarms.at(until, name)

    # ---------------------------------------------------------- care of states

    def _tend(self, name: str, group: GroupState) -> None:
        """Look after every state that cannot stay as it is (rules E12, E15 to E17)."""
        for job in list(group.uneasy):
            place = group.ledger.places.get(job)
            kind = self._care(group, place) if place is not None else None
            if place is not None and kind is not None:
                self._do(self._move(kind, name, place))
            if place is None or place.pending or not (place.failed or place.unsafe or place.doomed):
                group.uneasy.pop(job, None)

    def _care(self, group: GroupState, place: Place) -> type[Park | Restore | Discard] | None:
        """The move that this state needs now, if any."""
        if group.lost:
            return None
        if place.doomed and place.standing is not Standing.DISCARDING:
            return Discard
        if place.pending:
            return None
        if not place.failed:
            return Park if place.unsafe and place.standing is Standing.RESIDENT else None
        if place.standing is Standing.DISCARDING:
            if place.retry_us <= self.state.now:
                return Discard
            self._alarms.retry(group.group.name, place)
            return None
        if place.attempts <= group.group.retries:
            return _KIND[place.standing]
        self._quarantine(group.group.name, place)
        return Park if place.standing is Standing.RESTORING else Discard

    def _quarantine(self, name: str, place: Place) -> None:
        job = place.job
        if job in self.state.quarantined or job not in self.state.jobs:
            return
        reason = f"{place.standing.value} on group {name!r} failed {place.attempts} times"
        reason += place.why and f": {place.why}"
        self._do(Quarantine(job, reason))
        for request in [request for request in self.state.requests.values() if request.job == job]:
            self._refuse(request, "quarantined", f"job {job!r} was quarantined: {reason}")

    def _move(
        self, kind: type[Park | Restore | Discard], name: str, place: Place, again: bool = False
    ) -> Park | Restore | Discard:
        state = self.state
        group = state.groups[name]
        nodes = tuple(place.pending) if again else group.group.nodes
        op = place.op if again else state.next_op
        token = place.token if again else group.token + 1
        job = state.jobs.get(place.job)
        size = job.state_bytes.get(name, 0) if job is not None else 0
        return kind(op, name, place.job, token, nodes, group.group.move_timeout_us, size)


_REACTIONS: dict[type[Event], Callable[[Engine, Any], None]] = {
    PhaseRequested: Engine._asked,
    PhaseYielded: Engine._consider_hold,
    JobLeft: Engine._bereaved,
    JobLost: Engine._bereaved,
    EvictionForced: Engine._evicted,
    Restarted: Engine._restarted,
    Woke: Engine._ring,
}

_KIND = {standing: kind for kind, standing in decided.STANDING.items()}


def _grant(lease: Lease, tokens: dict[str, int], waited_us: int) -> Grant:
    request = lease.request
    return Grant(
        lease.id, request.client, request.number, request.job, dict(tokens), request.phase, waited_us, lease.restored
    )
