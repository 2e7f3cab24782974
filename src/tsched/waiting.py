"""The line of requests before one group: flows of requests, ordered by the policy's rank.

A heap of flow heads with lazy deletion, so that a decision costs the logarithm of the line's length. Entries are
(rank, seq, request); one is valid while its request stands in line and is its flow's head under that rank.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from tsched.policies import Policy
from tsched.turns import Request

Entry = tuple[int, int, Request]


class WaitQueue:
    """Who waits for one group, in the policy's order."""

    __slots__ = ("_flows", "_group", "_heap", "_heads", "_live", "_policy")

    def __init__(self, group: str, policy: Policy) -> None:
        self._group = group
        self._policy = policy
        self._heap: list[Entry] = []
        self._live: dict[tuple[str, int], int | None] = {}
        self._flows: dict[str, deque[Request]] = {}
        self._heads: dict[str, tuple[int, int]] = {}

    def __len__(self) -> int:
        return len(self._live)

    def __contains__(self, request: Request) -> bool:
        return request.key in self._live

    def push(self, request: Request, rank: int | None = None) -> None:
        """Append the request to its flow; a `rank` that it had before is kept (rule E14)."""
        flow = self._policy.flow(request)
        if flow is None:
            rank = self._policy.rank(request, self._group) if rank is None else rank
            self._live[request.key] = rank
            heappush(self._heap, (rank, request.seq, request))
            return
        self._live[request.key] = None
        line = self._flows.get(flow)
        if line is None:
            line = self._flows[flow] = deque()
        line.append(request)
        if len(line) > 1 and request.seq < line[-2].seq:
            line = self._flows[flow] = deque(sorted(line, key=lambda each: each.seq))
        if line[0] is request:
            self._enlist(flow, rank)

    def remove(self, request: Request) -> None:
        """Take the request out of line, wherever it stands."""
        del self._live[request.key]
        flow = self._policy.flow(request)
        if flow is not None:
            line = self._flows[flow]
            was_head = line[0] is request
            line.remove(request)
            if was_head:
                self._enlist(flow)
        elif len(self._heap) > 64 and len(self._heap) > 4 * len(self._live):
            self._heap = [entry for entry in self._heap if self._valid(entry)]
            heapify(self._heap)

    def recharge(self, request: Request) -> None:
        """The policy charged this request's flow: rank its head anew."""
        flow = self._policy.flow(request)
        if flow is not None and flow in self._flows:
            self._enlist(flow)

    def head(self) -> Request | None:
        heap = self._heap
        while heap:
            if self._valid(heap[0]):
                return heap[0][2]
            heappop(heap)
        return None

    def first(self, count: int) -> list[Request]:
        """The first `count` flow heads by rank."""
        taken: list[Entry] = []
        while self._heap and len(taken) < count:
            entry = heappop(self._heap)
            if self._valid(entry) and all(entry[2] is not other[2] for other in taken):
                taken.append(entry)
        for entry in taken:
            heappush(self._heap, entry)
        return [request for _, _, request in taken]

    def ordered(self) -> Iterator[Request]:
        """Everybody in line: flow by flow in rank order, arrivals in order. For people and snapshots, not for decisions."""
        for entry in sorted(entry for entry in self._heap if self._valid(entry)):
            flow = self._policy.flow(entry[2])
            yield from (self._flows[flow] if flow is not None else [entry[2]])

    def rank_of(self, request: Request) -> int | None:
        """The rank under which a request in line stands; None behind the head of its flow."""
        flow = self._policy.flow(request)
        if flow is None:
            return self._live[request.key]
        rank, seq = self._heads[flow]
        return rank if seq == request.seq else None

    def _enlist(self, flow: str, rank: int | None = None) -> None:
        line = self._flows[flow]
        if not line:
            del self._flows[flow]
            self._heads.pop(flow, None)
            return
        head = line[0]
        rank = self._policy.rank(head, self._group) if rank is None else rank
        if self._heads.get(flow) != (rank, head.seq):
            self._heads[flow] = (rank, head.seq)
            heappush(self._heap, (rank, head.seq, head))

    def _valid(self, entry: Entry) -> bool:
        rank, seq, request = entry
        if request.key not in self._live:
            return False
        flow = self._policy.flow(request)
        if flow is None:
            return self._live[request.key] == rank
        return self._heads.get(flow) == (rank, seq)
