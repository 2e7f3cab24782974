"""Fair share: each owner gets device time by its weight (P3)."""

from __future__ import annotations

import pytest

from tests.line import Line
from tsched.policies import Contest
from tsched.policies.fair_share import FairShare


def shares(weights: dict[str, float], lengths: dict[str, int], turns: int = 200) -> dict[str, float]:
    """Device time of owners that always have two requests in line."""
    line = Line(FairShare())
    used = dict.fromkeys(weights, 0)
    for owner, weight in weights.items():
        line.job(owner, weight=weight)
        line.ask(owner, lengths[owner])
        line.ask(owner, lengths[owner])
    for _ in range(turns):
        holder = line.book.engine.state.groups["g"].holder
        assert holder is not None
        used[holder.job] += lengths[holder.job]
        line.ask(line.turn(lengths[holder.job]), lengths[holder.job])
    return {owner: time / sum(used.values()) for owner, time in used.items()}


def test_owners_of_one_weight_share_alike_whatever_their_phases_take() -> None:
    got = shares({"a": 1, "b": 1}, {"a": 10_000, "b": 30_000})
    assert got["a"] == pytest.approx(0.5, abs=0.03)


def test_a_weight_buys_as_many_times_the_device_time() -> None:
    got = shares({"a": 3, "b": 1}, {"a": 10_000, "b": 10_000})
    assert got["a"] == pytest.approx(0.75, abs=0.03)


def test_many_jobs_of_one_owner_get_no_more_than_one() -> None:
    line = Line(FairShare())
    line.job("x", owner="x")
    for job in "abc":
        line.job(job, owner="team")
    for job in "abcabcxxxx":
        line.ask(job, 5000)
    assert line.turns(5000) == "axbxcxaxbc"


def test_an_owners_own_requests_keep_their_order() -> None:
    line = Line(FairShare())
    for job in "abcd":
        line.job(job, owner="team")
    for job, estimate in zip("dbca", (9, 7, 5, 1), strict=True):
        line.ask(job, estimate)
    assert line.turns() == "dbca"


def test_what_was_estimated_too_low_is_paid_for_at_the_end_of_the_turn() -> None:
    """P3: a said 1 ms and took 40: b has four turns of 10 before a has its next."""
    line = Line(FairShare())
    line.ask("a", 1000)
    for job in "abbbbb":
        line.ask(job, 1000 if job == "a" else 10_000)
    assert line.turn(40_000) == "a"
    assert [line.turn(10_000) for _ in range(5)] == ["b", "b", "b", "b", "a"]


def test_what_was_estimated_too_high_is_given_back() -> None:
    line = Line(FairShare())
    line.ask("a", 40_000)
    for job in "abbb":
        line.ask(job, 10_000)
    assert line.turn(1000) == "a"
    assert [line.turn(10_000) for _ in range(3)] == ["b", "a", "b"]


def test_who_was_away_neither_saves_up_nor_pays() -> None:
    """P3: a had ten turns while b was away; b then gets no more than its half."""
    line = Line(FairShare())
    for _ in range(10):
        line.ask("a", 10_000)
        line.turn(10_000)
    for job in "aabbbaa":
        line.ask(job, 10_000)
    served = line.turns(10_000)
    assert all(abs(served[:n].count("a") - served[:n].count("b")) <= 1 for n in range(7)), served


def test_the_switch_that_a_turn_caused_is_charged_to_it() -> None:
    policy = FairShare()
    line = Line(policy)
    line.ask("a", 5000)
    request = line.book.engine.state.leases[1].request
    before = policy.memory["g"]["a"]
    policy.granted(request, "g", switch_us=3000)
    assert policy.memory["g"]["a"] - before == 8000


def test_a_turn_of_no_length_costs_something() -> None:
    """P3: nobody gets infinitely many of them."""
    line = Line(FairShare())
    for job in "aaab":
        line.ask(job, 0)
    assert line.turns(0) == "abaa"


def test_it_claims_a_bound_that_grows_with_the_weights_of_others() -> None:
    def bound(max_weight: int, in_flow: int = 0) -> int:
        return FairShare().bound(Contest(0, 1, 0, in_flow, 2, [], 10_000, 10_000, 1000, max_weight))

    assert not FairShare().may_starve
    assert bound(1000) < bound(3000) < bound(3000, in_flow=1)
