"""The line of requests before one group: flows of requests, ordered by the policy's rank.

A heap of flow heads with lazy deletion, so that a decision costs the logarithm of the line's length. Entries are
(rank, seq, stamp, request); one is valid while it is the entry under which its request, or its flow, stands in line.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from tsched.policies import Policy
from tsched.turns import Key, Request

Entry = tuple[int, int, int, Request]


class WaitQueue:
    """Who waits for one group, in the policy's order."""

    __slots__ = ("_flows", "_group", "_heads", "_heap", "_live", "_policy", "_solo", "_stamp")

    def __init__(self, group: str, policy: Policy) -> None:
        self._group = group
        self._policy = policy
        self._solo = type(policy).flow is Policy.flow
        self._stamp = 0
        self._heap: list[Entry] = []
        self._live: dict[Key, Entry | None] = {}
        self._flows: dict[str, deque[Request]] = {}
        self._heads: dict[str, Entry] = {}

    def __len__(self) -> int:
        return len(self._live)

    def __contains__(self, request: Request) -> bool:
        return request.key in self._live

    def push(self, request: Request, rank: int | None = None) -> None:
        """Append the request to its flow; a `rank` that it had before is kept (rule E14)."""
        flow = None if self._solo else self._policy.flow(request)
        if flow is None:
            self._live[request.key] = self._entry(request, rank)
            return
        self._live[request.key] = None
        line = self._flows.get(flow)
        if line is None:
            line = self._flows[flow] = deque()
        line.append(request)
        if len(line) > 1 and request.seq < line[-2].seq:
            line = self._flows[flow] = deque(sorted(line, key=lambda each: each.seq))
        if line[0] is request:
            self._heads[flow] = self._entry(request, rank)

    def remove(self, request: Request) -> None:
        """Take the request out of line, wherever it stands."""
        del self._live[request.key]
        flow = None if self._solo else self._policy.flow(request)
        if flow is not None:
            line = self._flows[flow]
            if line[0] is request:
                line.popleft()
                self._enlist(flow)
            else:
                line.remove(request)
        if len(self._heap) > 64 and len(self._heap) > 4 * len(self._live):
            self._heap = [entry for entry in self._heap if self._valid(entry)]
            heapify(self._heap)

    def recharge(self, request: Request) -> None:
        """The policy charged this request's flow: rank its head anew."""
        if self._solo:
            return
        flow = self._policy.flow(request)
        if flow is not None and flow in self._flows:
            self._enlist(flow)

    def head(self) -> Request | None:
        heap = self._heap
        while heap:
            if self._valid(heap[0]):
                return heap[0][3]
            heappop(heap)
        return None

    def first(self, count: int) -> list[Request]:
        """The first `count` flow heads by rank."""
        taken: list[Entry] = []
        while self._heap and len(taken) < count:
            entry = heappop(self._heap)
            if self._valid(entry):
                taken.append(entry)
        for entry in taken:
            heappush(self._heap, entry)
        return [entry[3] for entry in taken]

    def ordered(self) -> Iterator[Request]:
        """Everybody in line: flow by flow in rank order, arrivals in order. For people, not for decisions."""
        for entry in sorted(entry for entry in self._heap if self._valid(entry)):
            flow = self._policy.flow(entry[3])
            yield from (self._flows[flow] if flow is not None else [entry[3]])

    def rank_of(self, request: Request) -> int | None:
        """The rank under which a request in line stands; None behind the head of its flow."""
        flow = self._policy.flow(request)
        entry = self._live[request.key] if flow is None else self._heads[flow]
        return entry[0] if entry is not None and entry[3] is request else None

    def before(self, one: Request, other: Request) -> bool:
        """Whether `one` ranks before `other`; who stands behind the head of a flow ranks after every head."""
        own, its = self.rank_of(one), self.rank_of(other)
        return own is not None and (its is None or (own, one.seq) < (its, other.seq))

    def _enlist(self, flow: str) -> None:
        line = self._flows[flow]
        if line:
            self._heads[flow] = self._entry(line[0], None)
        else:
            del self._flows[flow], self._heads[flow]

    def _entry(self, request: Request, rank: int | None) -> Entry:
        self._stamp += 1
        rank = self._policy.rank(request, self._group) if rank is None else rank
        entry = (rank, request.seq, self._stamp, request)
        heappush(self._heap, entry)
        return entry

    def _valid(self, entry: Entry) -> bool:
        if self._solo:
            return self._live.get(entry[3].key) is entry
        flow = self._policy.flow(entry[3])
        return (self._live.get(entry[3].key) if flow is None else self._heads.get(flow)) is entry
