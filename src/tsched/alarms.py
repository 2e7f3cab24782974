"""When to look again: the times at which a lease, a move that failed, or a group that is kept needs a decision.

A heap of alarms with lazy deletion. It is derived from the state and rebuilt after a restart, so it is in no snapshot.
"""

from __future__ import annotations

from heapq import heappop, heappush

from tsched.residency import Place
from tsched.state import State
from tsched.turns import Lease

Alarm = tuple[int, int, int | str]
"""When, in what order, and what to look at: a lease by its number or a group by its name."""


class Alarms:
    """What is due, soonest first."""

    def __init__(self) -> None:
        self._heap: list[Alarm] = []
        self._seq = 0
        self._retries: dict[tuple[str, str], int] = {}

    def __bool__(self) -> bool:
        return bool(self._heap)

    def clear(self) -> None:
        self._heap.clear()
        self._retries.clear()

    def at(self, when: int, what: int | str) -> None:
        """Look at this lease or group at `when` (microseconds)."""
        self._seq += 1
        heappush(self._heap, (when, self._seq, what))

    def lease(self, state: State, lease: Lease) -> None:
        """Look at the lease when it expires, has held too long, or may be suspended."""
        due = _lease_due(state, lease)
        if due is not None:
            self.at(due, lease.id)

    def retry(self, group: str, place: Place) -> None:
        """Look at the group when the place's back-off is over; asked for once each time."""
        if self._retries.get((group, place.job)) != place.retry_us:
            self._retries[group, place.job] = place.retry_us
            self.at(place.retry_us, group)

    def first(self, state: State) -> int | None:
        """When the next alarm is due; those of leases that have ended are dropped."""
        heap = self._heap
        while heap and isinstance(heap[0][2], int) and heap[0][2] not in state.leases:
            heappop(heap)
        return heap[0][0] if heap else None

    def due(self, now: int) -> int | str | None:
        """Take the next alarm that is due by `now`."""
        if self._heap and self._heap[0][0] <= now:
            return heappop(self._heap)[2]
        return None


def _lease_due(state: State, lease: Lease) -> int | None:
    if lease.suspended:
        return None
    first = lease.due_us
    for time in (lease.ends_us, _quantum_end(state, lease)):
        if time is not None and (first is None or time < first):
            first = time
    return first


def _quantum_end(state: State, lease: Lease) -> int | None:
    if len(lease.tokens) != 1:
        return None
    group = state.groups[next(iter(lease.tokens))].group
    if not group.suspendable or group.max_phase_us is None:
        return None
    end = lease.since_us + group.max_phase_us
    return end if end > state.now else None
