"""The line before one group stands as a plain sorted list would, under every policy."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsched.policies import Policy
from tsched.policies.fair_share import FairShare
from tsched.policies.fifo import Fifo
from tsched.policies.least_recently_served import LeastRecentlyServed
from tsched.policies.longest_remaining_first import LongestRemainingFirst
from tsched.policies.round_robin import RoundRobin
from tsched.policies.shortest_phase_first import ShortestPhaseFirst
from tsched.turns import Key, Request
from tsched.waiting import WaitQueue


class SomeAlone(FairShare):
    """Some requests stand in flows, others alone."""

    name = "some_alone"

    def flow(self, request: Request) -> str | None:  # type: ignore[override]
        return None if request.job == "a" else request.owner


POLICIES = [
    Fifo,
    ShortestPhaseFirst,
    FairShare,
    LeastRecentlyServed,
    RoundRobin,
    LongestRemainingFirst,
    SomeAlone,
]


class PlainLine:
    """The same line with nothing clever: flows as lists, sorted anew whenever somebody looks."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.waiting: list[Request] = []
        self.ranks: dict[Key, int] = {}

    def _flow(self, request: Request) -> tuple[str, ...] | Key:
        flow = self.policy.flow(request)
        return request.key if flow is None else (flow,)

    def flows(self) -> list[list[Request]]:
        lines: dict[tuple[str, ...] | Key, list[Request]] = {}
        for request in sorted(self.waiting, key=lambda each: each.seq):
            lines.setdefault(self._flow(request), []).append(request)
        return list(lines.values())

    def settle(self) -> None:
        """Only heads of flows have ranks, given when they come to stand there."""
        heads = [line[0] for line in self.flows()]
        self.ranks = {head.key: self.ranks[head.key] for head in heads if head.key in self.ranks}
        for head in heads:
            if head.key not in self.ranks:
                self.ranks[head.key] = self.policy.rank(head, "g")

    def push(self, request: Request, rank: int | None) -> None:
        self.waiting.append(request)
        if rank is not None:
            self.ranks[request.key] = rank
        self.settle()

    def remove(self, request: Request) -> None:
        self.waiting.remove(request)
        self.settle()

    def recharge(self, request: Request) -> None:
        flow = self.policy.flow(request)
        for line in self.flows() if flow is not None else []:
            if self.policy.flow(line[0]) == flow:
                del self.ranks[line[0].key]
        self.settle()

    def ordered(self) -> list[list[Request]]:
        return sorted(self.flows(), key=lambda line: (self.ranks[line[0].key], line[0].seq))


def drawn(seq: int, who: int, length: int) -> Request:
    job = "abcd"[who % 4]
    owner = "xy"[who % 2]
    weight = 1000 + 500 * (who % 3)
    return Request((job, seq), job, seq, job, owner, weight, ("g",), "", length, length * who, 10 * seq, seq)


steps = st.lists(
    st.tuples(
        st.sampled_from(("push", "push", "push", "cancel", "grant", "grant", "release", "resume")),
        st.integers(0, 11),
        st.integers(0, 5000),
    ),
    max_size=60,
)


@pytest.mark.parametrize("make", POLICIES, ids=lambda make: make.name)
@given(steps)
def test_the_line_is_that_of_a_sorted_list(make: Callable[[], Policy], script: list[tuple[str, int, int]]) -> None:
    """P0"""
    queue_policy, line_policy = make(), make()
    queue, line = WaitQueue("g", queue_policy), PlainLine(line_policy)
    served: list[tuple[Request, int | None]] = []
    for seq, (step, who, length) in enumerate(script, start=1):
        if step == "push":
            request = drawn(seq, who, length)
            queue.push(request)
            line.push(request, None)
        elif step in ("cancel", "grant") and line.waiting:
            ordered = [request for each in line.ordered() for request in each]
            request = ordered[who % len(ordered)] if step == "cancel" else ordered[0]
            rank = queue.rank_of(request)
            queue.remove(request)
            line.remove(request)
            if step == "grant":
                served.append((request, rank))
                for policy, one in ((queue_policy, queue), (line_policy, line)):
                    policy.granted(request, "g", length)
                    one.recharge(request)
        elif step == "release" and served:
            request, _ = served.pop(who % len(served))
            for policy, one in ((queue_policy, queue), (line_policy, line)):
                policy.released(request, "g", length)
                one.recharge(request)
        elif step == "resume" and served:
            request, rank = served.pop(who % len(served))
            queue.push(request, rank)
            line.push(request, rank)
        compare(queue, line)


def compare(queue: WaitQueue, line: PlainLine) -> None:
    ordered = line.ordered()
    heads = [each[0] for each in ordered]
    assert queue.head() is (heads[0] if heads else None)
    for count in (1, 2, 8):
        assert queue.first(count) == heads[:count]
    assert list(queue.ordered()) == [request for each in ordered for request in each]
    assert len(queue) == len(line.waiting)
    for request in line.waiting:
        assert request in queue
        assert queue.rank_of(request) == line.ranks.get(request.key)


@pytest.mark.parametrize("make", POLICIES, ids=lambda make: make.name)
def test_those_who_left_leave_nothing_behind(make: Callable[[], Policy]) -> None:
    """However many come and go, looking costs the same."""
    queue = WaitQueue("g", make())
    stays = drawn(0, 3, 9)
    queue.push(stays)
    for seq in range(1, 2000):
        request = drawn(seq, seq, seq % 7)
        queue.push(request)
        queue.remove(request)
        assert request not in queue
    assert queue.head() is stays
    assert queue.first(8) == list(queue.ordered()) == [stays]
    assert len(queue._heap) <= 128


def test_a_rank_that_was_given_before_is_kept() -> None:
    """E14"""
    queue = WaitQueue("g", ShortestPhaseFirst())
    queue.push(drawn(1, 0, 50))
    long = drawn(2, 1, 90_000)
    queue.push(long, rank=-1)
    assert queue.head() is long
    assert queue.rank_of(long) == -1


def test_an_empty_line_has_nobody_first() -> None:
    queue = WaitQueue("g", Fifo())
    assert (queue.head(), queue.first(8), list(queue.ordered()), len(queue)) == (None, [], [], 0)
