"""Longest remaining work first: shortest makespan for a batch."""

from __future__ import annotations

from tsched.policies import Policy, Waiter


class LongestRemainingFirst(Policy):
    """Order: the job with the most work left, (P6): as declared with the request,
    else what its job declared in all less what it was served; unknown counts as none.

    Claims no bound: it may starve a short job for as long as longer ones keep coming. A batch ends, so there nobody
    starves. Assumes that remaining work is declared.
    """

    name = "longest_remaining_first"
    may_starve = True

    def rank(self, request: Waiter, group: str) -> int:
        return -(request.remaining_us or 0)
