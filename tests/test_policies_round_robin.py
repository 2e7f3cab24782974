"""Round robin: each job one phase a round (P5)."""

from __future__ import annotations

from tests.line import Line
from tsched.policies import Contest
from tsched.policies.round_robin import RoundRobin


def test_each_job_gets_one_phase_a_round() -> None:
    line = Line(RoundRobin())
    for job in "aaabbc":
        line.ask(job)
    assert line.turns() == "abcaba"


def test_within_a_round_jobs_go_in_order_of_arrival() -> None:
    line = Line(RoundRobin())
    for job in "cab":
        line.ask(job, estimate=100 - line.number)
    assert line.turns() == "cab"


def test_who_comes_back_within_the_round_waits_for_the_next() -> None:
    line = Line(RoundRobin())
    for job in "abc":
        line.ask(job)
    line.turn()
    line.ask("a")
    assert line.turns() == "bca"


def test_who_was_away_joins_the_present_round() -> None:
    """P5: it has not saved up the rounds that it missed."""
    line = Line(RoundRobin())
    for _ in range(5):
        line.ask("a")
        line.turn()
    for job in "aannn":
        line.ask(job)
    assert line.turns() in ("anann", "annan")


def test_it_claims_each_other_job_at_most_twice_a_request() -> None:
    policy = RoundRobin()
    assert policy.bound(Contest(0, 1, 9, 0, 4, [], 1, 1, 1000, 1000)) == 8
    assert policy.bound(Contest(0, 1, 9, 1, 4, [], 1, 1, 1000, 1000)) == 17
    assert not policy.may_starve
