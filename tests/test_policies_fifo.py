"""First in, first out (P1)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.line import Line
from tsched.errors import Invalid
from tsched.policies import Contest
from tsched.policies.fifo import Fifo

CONTEST = Contest(
    0,
    10,
    ahead=3,
    in_flow=0,
    jobs=5,
    arrivals=[],
    min_charge_us=1,
    max_charge_us=9,
    min_weight_milli=1000,
    max_weight_milli=1000,
)


@given(st.lists(st.sampled_from("abcd"), max_size=20))
def test_turns_come_in_order_of_arrival(asked: list[str]) -> None:
    line = Line(Fifo())
    for job in asked:
        line.ask(job, estimate=1000 - len(line.book.log))
    assert line.turns() == "".join(asked)


def test_who_comes_back_stands_last() -> None:
    line = Line(Fifo())
    for job in "abc":
        line.ask(job)
    line.turn()
    line.ask("a")
    assert line.turns() == "bca"


def test_it_claims_to_be_overtaken_by_those_who_were_there_before_alone() -> None:
    assert Fifo().bound(CONTEST) == 3
    assert not Fifo().may_starve


def test_options_widen_the_bound_by_what_is_stated() -> None:
    """P7, P8"""
    assert Fifo(window=4).bound(CONTEST) == 3 + 4
    assert Fifo(linger_s=1).bound(CONTEST) == 2 * 3 + 1
    assert Fifo(window=8, linger_s=1).bound(CONTEST) == 2 * 3 + 1 + 8


@pytest.mark.parametrize("window", [0, 9, -1])
def test_a_window_is_one_to_eight(window: int) -> None:
    """P7"""
    with pytest.raises(Invalid, match=f"policy 'fifo': window must be 1 to 8, not {window}"):
        Fifo(window=window)


@pytest.mark.parametrize("linger_s", [-0.1, float("nan"), float("inf")])
def test_a_linger_is_a_number_of_seconds(linger_s: float) -> None:
    """P8"""
    with pytest.raises(Invalid, match="linger_s must be a number of seconds >= 0"):
        Fifo(linger_s=linger_s)
