"""Cost models answer in whole microseconds, and the same thing twice."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsched.costs import Bandwidth, Costs, FixedTable, Samples, draw64, move_us
from tsched.errors import Invalid


@given(size=st.integers(0, 1 << 45), rate=st.integers(1, 1 << 40), latency_us=st.integers(0, 10**9))
def test_bandwidth_is_latency_and_the_bytes_rounded_up(size: int, rate: int, latency_us: int) -> None:
    took_us = Bandwidth(rate, latency_us).park_us("g", "a", size, 0) - latency_us
    assert (took_us - 1) * rate < size * 1_000_000 <= took_us * rate


def test_bandwidth_is_the_same_in_both_directions() -> None:
    costs = Bandwidth(10**9, 500)
    assert costs.restore_us("g", "a", 2 * 10**9, 3) == costs.park_us("g", "a", 2 * 10**9, 3) == 2_000_500


def test_a_table_knows_its_groups_and_has_a_default() -> None:
    costs = FixedTable(park={"g": 21}, restore={"g": 9}, default_us=5)
    assert [costs.park_us("g", "a", 1, 0), costs.restore_us("g", "a", 1, 0)] == [21, 9]
    assert [costs.park_us("h", "a", 1, 0), costs.restore_us("h", "a", 1, 0)] == [5, 5]


@given(n=st.integers(0, 10**6), job=st.text(), seed=st.integers())
def test_a_sample_is_one_of_the_measured_and_depends_on_its_arguments_alone(n: int, job: str, seed: int) -> None:
    costs = Samples(park={"g": (1, 5, 9)}, seed=seed)
    assert costs.park_us("g", job, 0, n) in (1, 5, 9)
    assert costs.park_us("g", job, 0, n) == Samples(park={"g": (1, 5, 9)}, seed=seed).park_us("g", job, 10**9, n)


def test_samples_come_up_about_equally_often() -> None:
    costs = Samples(restore={"g": (0, 1)}, seed=7)
    ones = sum(costs.restore_us("g", "a", 0, n) for n in range(2_000))
    assert 900 < ones < 1_100


def test_to_discard_costs_nothing() -> None:
    costs = FixedTable(default_us=5)
    assert [move_us(costs, kind, "g", "a", 1, 0) for kind in ("park", "restore", "discard")] == [5, 5, 0]


def test_draws_are_the_same_on_every_machine() -> None:
    assert draw64(0, "fault", "a", 1) == 13386997781643244530


@pytest.mark.parametrize("costs", [Bandwidth(1, 2), FixedTable(park={"g": 1}), Samples(restore={"g": (1,)}, seed=3)])
def test_models_are_named_by_their_kind_in_files(costs: Costs) -> None:
    assert msgspec.json.decode(msgspec.json.encode(costs), type=Costs) == costs


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Bandwidth(0), "bytes_per_s must be > 0, not 0"),
        (lambda: Bandwidth(1, -1), "latency_us must be >= 0, not -1"),
        (lambda: FixedTable(park={"g": -3}), "park of group 'g' must be >= 0, not -3"),
        (lambda: FixedTable(default_us=-1), "default_us must be >= 0"),
        (lambda: Samples(park={"g": ()}), "needs at least one measured cost"),
        (lambda: Samples(restore={"g": (1, -1)}), "restore of group 'g' must be >= 0, not -1"),
    ],
)
def test_a_wrong_cost_says_what_would_be_right(make: object, text: str) -> None:
    with pytest.raises(Invalid, match=text):
        make()  # type: ignore[operator]
