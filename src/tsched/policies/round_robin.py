"""Round robin: each job one phase per round."""

from __future__ import annotations

from tsched.policies import Contest, Policy, Waiter

ROUND = ""


class RoundRobin(Policy):
    """Order: rounds; in each round every job that waits gets one phase, in order of arrival (P5).

    A job that comes back within the round waits for the next; one that was away joins the present round.
    Bound: each other job at most twice for the request and for each of its own job's that stand before it.
    Assumes nothing; phases of unlike length get unlike time.
    """

    name = "round_robin"

    def flow(self, request: Waiter) -> str:
        return request.job

    def rank(self, request: Waiter, group: str) -> int:
        memory = self._memory(group)
        return max(memory.get(ROUND, 0), memory.get(request.job, 0))

    def granted(self, request: Waiter, group: str, switch_us: int) -> None:
        memory = self._memory(group)
        memory[ROUND] = max(memory.get(ROUND, 0), memory.get(request.job, 0))
        memory[request.job] = memory[ROUND] + 1

    def bound(self, contest: Contest) -> int:
        return self.slack(2 * contest.jobs * (contest.in_flow + 1) + contest.in_flow)
