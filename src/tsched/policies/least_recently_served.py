"""Least recently served job first."""

from __future__ import annotations

from tsched.policies import Contest, Policy, Waiter

COUNT = ""


class LeastRecentlyServed(Policy):
    """Order: the job whose last turn on this group began longest ago (P4); a new job counts
    as served when it first asks.


    Bound: each other job at most once for the request and for each of its own job's that stand before it.
    """

    name = "least_recently_served"

    def flow(self, request: Waiter) -> str:
        return request.job

    def rank(self, request: Waiter, group: str) -> int:
        memory = self._memory(group)
        if request.job not in memory:
            _serve(memory, request.job)
        return memory[request.job]

    def granted(self, request: Waiter, group: str, switch_us: int) -> None:
        _serve(self._memory(group), request.job)

    def bound(self, contest: Contest) -> int:
        return self.slack(contest.jobs * (contest.in_flow + 1) + contest.in_flow)


def _serve(memory: dict[str, int], job: str) -> None:
    memory[COUNT] = memory[job] = memory.get(COUNT, 0) + 1
