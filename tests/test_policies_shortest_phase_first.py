"""Shortest phase first, with ageing (P2)."""

from __future__ import annotations

import pytest

from tests.line import Line
from tsched.errors import Invalid
from tsched.policies import Contest
from tsched.policies.shortest_phase_first import ShortestPhaseFirst


def test_the_shortest_of_those_who_wait_is_next() -> None:
    line = Line(ShortestPhaseFirst())
    line.ask("a", 50)
    for job, estimate in (("b", 30), ("c", 10), ("d", 20)):
        line.ask(job, estimate)
    assert line.turns() == "acdb"


def test_equals_go_by_arrival() -> None:
    line = Line(ShortestPhaseFirst())
    for job in "abc":
        line.ask(job, 10)
    assert line.turns() == "abc"


@pytest.mark.parametrize(("later_us", "order"), [(1999, "acb"), (2000, "abc"), (2001, "abc")])
def test_a_request_is_overtaken_only_by_those_who_come_within_its_estimate_over_alpha(
    later_us: int, order: str
) -> None:
    """P2: b asks for 1,000; with an alpha of 0.5 nobody who comes 2,000 later goes before it."""
    line = Line(ShortestPhaseFirst(alpha=0.5))
    line.ask("a", 1)
    line.ask("b", 1000)
    line.book.after(later_us)
    line.ask("c", 0)
    assert line.turns() == order


def test_the_bound_follows_from_estimate_and_alpha() -> None:
    arrivals = [(10, 0), (2000, 0), (2001, 0)]
    contest = Contest(0, 1000, 1, 0, 5, arrivals, 1, 1000, 1000, 1000)
    assert ShortestPhaseFirst(alpha=0.5).bound(contest) == 1 + 2
    assert ShortestPhaseFirst(alpha=0.5, window=3).bound(contest) == 1 + 2 + 3


@pytest.mark.parametrize("alpha", [0, -1, 0.0001, 1001, float("nan")])
def test_alpha_keeps_within_reason(alpha: float) -> None:
    with pytest.raises(Invalid, match=r"alpha must be 0\.001 to 1000"):
        ShortestPhaseFirst(alpha=alpha)
