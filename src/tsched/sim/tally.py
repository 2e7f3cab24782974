"""What a decision log amounts to: busy time, waits and switches, added up record by record."""

from __future__ import annotations

from array import array
from collections.abc import Iterable

from msgspec import Struct, field

from tsched.commands import Discard, Grant, Park, Refuse, Restore, Revoke, Suspend
from tsched.events import (
    Discarded,
    JobAdded,
    JobLeft,
    JobLost,
    MoveFailed,
    Parked,
    PhaseRequested,
    PhaseYielded,
    Restored,
)
from tsched.journal import Record
from tsched.model import Group

_MOVES = (Park, Restore, Discard)


class GroupTally:
    """One group: `busy_us` is how long it was held, `switched_us` for each switch how long somebody waited for it."""

    __slots__ = ("brought", "busy_us", "holder", "idle_since", "moves", "parked", "since", "switched_us")

    def __init__(self) -> None:
        self.busy_us = 0
        self.switched_us = array("q")
        self.holder: int | None = None
        self.since = 0
        self.idle_since = 0
        self.parked = False
        self.brought: set[str] = set()
        self.moves: dict[int, list[int]] = {}

    def granted(self, lease: int, job: str, waited_us: int, now: int) -> None:
        self.holder, self.since = lease, now
        if job in self.brought or self.parked:
            self.switched_us.append(self._moved(max(self.idle_since, now - waited_us), now) if self.moves else 0)
        if self.moves:
            self.moves = {op: span for op, span in self.moves.items() if not span[1]}
        self.brought.discard(job)
        self.parked = False

    def released(self, now: int) -> None:
        self.busy_us += now - self.since
        self.holder, self.idle_since = None, now

    def moving(self, kind: type, op: int, job: str, nodes: int, now: int) -> None:
        if kind is Park:
            self.parked = True
        elif kind is Restore:
            self.brought.add(job)
        self.moves[op] = [now, 0, nodes]

    def moved(self, op: int, now: int) -> bool:
        """One node of a move answered; whether that was the last."""
        span = self.moves.get(op)
        if span is None:
            return True
        span[2] -= 1
        if span[2] <= 0:
            span[1] = now
        return span[2] <= 0

    def _moved(self, start: int, end: int) -> int:
        """How much of `start` to `end` had a move under way."""
        total = 0
        for begun, ended, _ in sorted(self.moves.values()):
            last = min(end, ended or end)
            if last > max(start, begun):
                total += last - max(start, begun)
                start = last
        return total


class JobTally(Struct):
    """One job: when it came, when it gave its last turn back, each wait, and why it failed, if it did."""

    arrived_us: int = 0
    last_yield_us: int = 0
    waits_us: array[int] = field(default_factory=lambda: array("q"))
    done: bool = False
    failed: str = ""


class Tally:
    """Feed it every record, in order; read `groups`, `jobs`, `first_us` and `last_us`."""

    def __init__(self, groups: Iterable[Group]) -> None:
        self.groups = {group.name: GroupTally() for group in groups}
        self.jobs: dict[str, JobTally] = {}
        self.first_us: int | None = None
        self.last_us = 0
        self._leases: dict[int, tuple[str, list[str]]] = {}
        self._moves: dict[int, GroupTally] = {}

    def take(self, record: Record) -> None:
        """Add one record."""
        event, now = record.event, record.now
        kind = type(event)
        if kind is PhaseRequested:
            if self.first_us is None:
                self.first_us = now
        elif kind is PhaseYielded:
            self._yielded(event.lease, event.groups, now)  # type: ignore[union-attr]
        elif kind in (Parked, Restored, Discarded, MoveFailed):
            op: int = event.op  # type: ignore[union-attr]
            group = self._moves.get(op)
            if group is not None and group.moved(op, now):
                del self._moves[op]
        elif kind is JobAdded:
            self.jobs.setdefault(event.job.name, JobTally(arrived_us=now))  # type: ignore[union-attr]
        elif kind is JobLeft:
            self.jobs[event.job].done = True  # type: ignore[union-attr, index]
        elif kind is JobLost:
            self.jobs[event.job].failed = event.reason or "lost"  # type: ignore[union-attr, index]
        for command in record.commands:
            what = type(command)
            if what is Grant:
                self._granted(command, now)  # type: ignore[arg-type]
            elif what in _MOVES:
                self._moving(command, now)  # type: ignore[arg-type]
            elif what is Revoke:
                self._revoked(command, now)  # type: ignore[arg-type]
            elif what is Suspend:
                self._suspended(command, now)  # type: ignore[arg-type]
            elif what is Refuse:
                self._refused(record, command)  # type: ignore[arg-type]

    def _granted(self, grant: Grant, now: int) -> None:
        known = self._leases.get(grant.lease)
        if known is None:
            self._leases[grant.lease] = (grant.job, list(grant.tokens))
            job = self.jobs.get(grant.job)
            if job is not None:
                job.waits_us.append(grant.waited_us)
        for name in grant.tokens:
            group = self.groups[name]
            if group.holder != grant.lease:
                group.granted(grant.lease, grant.job, grant.waited_us, now)

    def _yielded(self, lease: int, names: tuple[str, ...], now: int) -> None:
        job = self._release(lease, names, now)
        if job is not None:
            self.last_us = now
            if job in self.jobs:
                self.jobs[job].last_yield_us = now

    def _release(self, lease: int, names: tuple[str, ...], now: int) -> str | None:
        """End the lease on `names`, or on all that it has; the job whose it was."""
        known = self._leases.get(lease)
        if known is None:
            return None
        job, held = known
        for name in names or tuple(held):
            if name in held:
                held.remove(name)
                if self.groups[name].holder == lease:
                    self.groups[name].released(now)
        if not held:
            del self._leases[lease]
        return job

    def _revoked(self, revoke: Revoke, now: int) -> None:
        job = self._release(revoke.lease, revoke.groups, now)
        if job is not None and job in self.jobs and not self.jobs[job].failed:
            self.jobs[job].failed = revoke.reason

    def _suspended(self, suspend: Suspend, now: int) -> None:
        for name in self._leases[suspend.lease][1]:
            self.groups[name].released(now)

    def _refused(self, record: Record, refuse: Refuse) -> None:
        job = record.event.job if isinstance(record.event, PhaseRequested) else refuse.client.partition("/")[0]
        if job in self.jobs and not self.jobs[job].failed:
            self.jobs[job].failed = refuse.detail

    def _moving(self, move: Park | Restore | Discard, now: int) -> None:
        group = self.groups[move.group]
        group.moving(type(move), move.op, move.job, len(move.nodes), now)
        self._moves[move.op] = group


def tally(groups: Iterable[Group], records: Iterable[Record]) -> Tally:
    """The tally of a whole log."""
    total = Tally(groups)
    for record in records:
        total.take(record)
    return total
