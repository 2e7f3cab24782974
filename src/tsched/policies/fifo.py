"""First in, first out."""

from __future__ import annotations

from tsched.policies import Contest, Policy, Waiter


class Fifo(Policy):
    """Order: arrival. Bound: only the requests that were there before (P1). Assumes nothing.

    Over two pools it can march equal jobs in lockstep and leave a pool idle.
    """

    name = "fifo"

    def rank(self, request: Waiter, group: str) -> int:
        return request.seq

    def bound(self, contest: Contest) -> int:
        return self.slack(contest.ahead)
