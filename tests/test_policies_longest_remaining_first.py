"""Longest remaining work first (P6)."""

from __future__ import annotations

from tests.line import Line
from tsched.policies import Contest
from tsched.policies.longest_remaining_first import LongestRemainingFirst


def test_the_job_with_the_most_work_left_is_next() -> None:
    line = Line(LongestRemainingFirst())
    line.ask("a", remaining=1)
    for job, remaining in (("b", 10), ("c", 30), ("d", 20)):
        line.ask(job, remaining=remaining)
    assert line.turns() == "acdb"


def test_unknown_work_counts_as_none_and_equals_go_by_arrival() -> None:
    line = Line(LongestRemainingFirst())
    line.ask("a", remaining=1)
    line.ask("b")
    line.ask("c", remaining=0)
    line.ask("d", remaining=1)
    assert line.turns() == "adbc"


def test_it_says_that_it_may_starve_and_claims_no_bound() -> None:
    """P0, P6: a short job waits for as long as longer ones keep coming."""
    policy = LongestRemainingFirst()
    assert policy.may_starve
    assert policy.bound(Contest(0, 1, 0, 0, 1, [], 1, 1, 1000, 1000)) is None
    line = Line(policy)
    for _ in range(3):
        line.ask("long", remaining=50)
    line.ask("s", remaining=1)
    for _ in range(20):
        assert line.turn() == "long"
        line.ask("long", remaining=50)
