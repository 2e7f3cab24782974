"""Shortest phase first, with linear ageing."""

from __future__ import annotations

from tsched.errors import Invalid
from tsched.policies import Contest, Policy, Waiter

MILLI = 1000


class ShortestPhaseFirst(Policy):
    """Order: estimate + alpha * arrival time (P2). All waiters age alike, so the order of two never changes.

    Bound: a request of estimate e that arrived at a is overtaken only by those there before it and those that
    arrive before a + e / alpha. Assumes honest estimates; they are corrected by what phases really took.
    """

    name = "shortest_phase_first"

    def __init__(self, alpha: float = 0.1, window: int = 1, linger_s: float = 0.0) -> None:
        super().__init__(window, linger_s)
        if not 0.001 <= alpha <= 1000:
            raise Invalid(f"policy {self.name!r}: alpha must be 0.001 to 1000, not {alpha}")
        self.alpha_milli = round(alpha * MILLI)

    def rank(self, request: Waiter, group: str) -> int:
        return request.estimate_us * MILLI + self.alpha_milli * request.arrived_us

    def bound(self, contest: Contest) -> int:
        horizon = contest.arrived_us + contest.estimate_us * MILLI // self.alpha_milli
        late = sum(1 for arrived, _ in contest.arrivals if arrived <= horizon)
        return self.slack(contest.ahead + late)
