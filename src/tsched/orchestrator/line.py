"""Requests of clients that name a job and a group and nothing else: one for each pair, however often it is asked.

A request is known to the scheduler by a client, "llmd:JOB", and a number. A repeated Acquire waits in the same place,
or attaches to the lease that came of it, also after a restart: what the scheduler then knows already is found again.
"""

from __future__ import annotations

import asyncio
import time

from tsched.lease import Lease
from tsched.scheduler import Scheduler
from tsched.status import Status

CLIENT = "llmd:"

Key = tuple[str, str]


class Turn:
    """One job's request for one group; `calls` are the handlers that wait for it, `lease` what came of it.

    `told`: a caller was answered that it has come.
    """

    __slots__ = ("calls", "group", "job", "lease", "number", "over", "told", "withdrawn")

    def __init__(self, job: str, group: str, number: int) -> None:
        self.job, self.group, self.number = job, group, number
        self.calls: set[asyncio.Task[object]] = set()
        self.lease: Lease | None = None
        self.withdrawn = self.told = False
        self.over = asyncio.Event()

    @property
    def client(self) -> str:
        return CLIENT + self.job

    @property
    def held(self) -> bool:
        return self.lease is not None and self.lease.held


class Line:
    """All such requests of one scheduler that wait or hold."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._turns: dict[Key, Turn] = {}
        self._of: dict[str, list[Turn]] = {}
        self._next = time.time_ns() // 1000  # so that no number comes twice, over any restarts

    def recover(self, status: Status) -> tuple[list[Turn], list[Turn]]:
        """Find again what the scheduler knows from its log; answers the turns that hold, and those suspended."""
        leased = {(self._scheduler.client_of(n), self._scheduler.request_of(n)) for n in status.suspended}
        held: list[Turn] = []
        suspended: list[Turn] = []
        for name, group in status.groups.items():
            for waiter in group.waiters:
                if waiter.client == CLIENT + waiter.job:
                    turn = self._add(Turn(waiter.job, name, waiter.request))
                    suspended += [turn] if (waiter.client, waiter.request) in leased else []
            holder = group.holder
            if holder is not None and holder.client == CLIENT + holder.job:
                held.append(self._add(Turn(holder.job, name, holder.request)))
        return held, suspended

    def get(self, job: str, group: str) -> Turn | None:
        return self._turns.get((job, group))

    def enter(self, job: str, group: str) -> Turn:
        """The turn that waits or holds, or a new one."""
        turn = self._turns.get((job, group))
        if turn is None or turn.withdrawn:
            turn = self._add(Turn(job, group, self._next))
        return turn

    def outer(self, turn: Turn) -> Lease | None:
        """The lease that the job holds meanwhile, to ask within; none where that one waits for something already."""
        others = [other for other in self._of.get(turn.job, ()) if other is not turn]
        if any(other.lease is None for other in others):
            return None
        held = [other.lease for other in others if other.lease is not None and other.held and not other.lease.suspended]
        return min(held, key=lambda lease: lease.id, default=None)

    def granted(self, turn: Turn, lease: Lease) -> None:
        """The turn has come; it is forgotten when the lease ends."""

        def changed() -> None:
            if not lease.groups:
                self.drop(turn)

        turn.lease, lease.on_change = lease, changed

    def drop(self, turn: Turn) -> None:
        """The turn has ended, or will not come."""
        if turn.lease is not None:
            turn.lease.on_change = None
        if self._turns.get((turn.job, turn.group)) is turn:
            del self._turns[turn.job, turn.group]
        turns = self._of.get(turn.job, [])
        if turn in turns:
            turns.remove(turn)
        if not turns:
            self._of.pop(turn.job, None)
        turn.over.set()

    def holding(self) -> list[Lease]:
        """All leases that came of such requests, of which somebody here knows."""
        return [turn.lease for turn in self._turns.values() if turn.lease is not None and turn.lease.held]

    def _add(self, turn: Turn) -> Turn:
        self._next = max(self._next, turn.number + 1)
        self._turns[turn.job, turn.group] = turn
        self._of.setdefault(turn.job, []).append(turn)
        return turn
