"""A fitted workload's makespan under a policy, with an interval, beside what was recorded."""

from __future__ import annotations

from msgspec import Struct

from tsched.model import SECOND_US
from tsched.sim.fit import Fitted
from tsched.sim.simulator import simulate
from tsched.sim.statistics import quantile


class Prediction(Struct, frozen=True):
    """`low_s` to `high_s` holds 95 % of the scenarios, and the prediction itself; `error` is beside the recording."""

    policy: str
    makespan_s: float
    low_s: float
    high_s: float
    recorded_makespan_s: float | None = None
    error: float | None = None

    @property
    def holds(self) -> bool:
        """Whether the interval contains what was recorded."""
        return self.recorded_makespan_s is not None and self.low_s <= self.recorded_makespan_s <= self.high_s


def predict(fitted: Fitted, policy: str = "fifo") -> Prediction:
    """Simulate what is expected, and everything else that is possible."""
    expected = simulate(fitted.expected, policy, keep=False).result.makespan_s
    spread = sorted([expected, *(simulate(each, policy, keep=False).result.makespan_s for each in fitted.spread)])
    recorded = fitted.expected.recorded_makespan_us
    return Prediction(
        policy,
        expected,
        min(expected, quantile(spread, 0.025)),
        max(expected, quantile(spread, 0.975)),
        None if recorded is None else recorded / SECOND_US,
        None if not recorded else expected * SECOND_US / recorded - 1,
    )
