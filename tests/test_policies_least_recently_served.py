"""Least recently served first (P4)."""

from __future__ import annotations

from tests.line import Line
from tsched.policies import Contest
from tsched.policies.least_recently_served import LeastRecentlyServed


def test_the_job_whose_last_turn_began_longest_ago_is_next() -> None:
    line = Line(LeastRecentlyServed())
    for job in "abc":
        line.ask(job)
    assert line.turns() == "abc"
    line.ask("c")
    for job in "cba":
        line.ask(job)
    assert line.turns() == "cabc"


def test_a_new_job_counts_as_served_when_it_first_asks() -> None:
    """P4: it goes after a, whose turn began before that, and before b, whose turn began after."""
    line = Line(LeastRecentlyServed())
    for job in "abn":
        line.ask(job)
    assert line.turn() == "a"
    line.ask("a")
    line.ask("b")
    assert line.turns() == "banb"


def test_a_job_that_always_comes_back_at_once_is_not_always_served() -> None:
    """Fault 8: one tenant served 20 of 20 turns."""
    line = Line(LeastRecentlyServed())
    for job in "abc":
        line.ask(job)
    for _ in range(20):
        line.ask(line.turn())
    assert all(set(line.granted[n : n + 3]) == set("abc") for n in range(1, 18)), line.granted


def test_a_jobs_own_requests_keep_their_order() -> None:
    line = Line(LeastRecentlyServed())
    for _ in range(3):
        line.ask("a")
    assert line.turns() == "aaa"
    clients = [lease for _, event, _ in line.book.log if (lease := getattr(event, "lease", None))]
    assert clients == [1, 2, 3]


def test_it_claims_each_other_job_at_most_once_a_request() -> None:
    policy = LeastRecentlyServed()
    assert policy.bound(Contest(0, 1, 9, 0, 4, [], 1, 1, 1000, 1000)) == 4
    assert policy.bound(Contest(0, 1, 9, 2, 4, [], 1, 1, 1000, 1000)) == 4 * 3 + 2
    assert not policy.may_starve
