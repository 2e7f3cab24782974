"""Durations draw whole microseconds, never negative ones."""

from __future__ import annotations

from random import Random
from statistics import mean

import pytest

from tsched.sim import Exponential, Fixed, Lognormal, Normal, Recorded, Uniform
from tsched.sim.durations import Duration, problem

ALL: list[Duration] = [
    Fixed(1_000_000),
    Lognormal(1_000_000, 0.25),
    Uniform(500_000, 1_500_000),
    Normal(1_000_000, 100_000),
    Exponential(1_000_000),
]


@pytest.mark.parametrize("duration", ALL, ids=lambda each: type(each).__name__)
def test_what_is_drawn_is_on_average_what_is_expected(duration: Duration) -> None:
    rng = Random(1)
    drawn = [duration.draw(rng, 0) for _ in range(20_000)]
    assert min(drawn) >= 0
    assert mean(drawn) == pytest.approx(duration.expected_us(), rel=0.03)
    assert problem(duration, 1) is None


def test_recorded_values_come_one_an_iteration() -> None:
    recorded = Recorded((5, 7, 9))
    assert [recorded.draw(Random(0), turn) for turn in range(3)] == [5, 7, 9]
    assert recorded.expected_us() == 7
    assert problem(recorded, 3) is None
    assert "one for each of 4" in (problem(recorded, 4) or "")


@pytest.mark.parametrize(
    ("duration", "said"),
    [
        (Fixed(-1), "us = -1"),
        (Lognormal(5, float("nan")), "sigma = nan"),
        (Uniform(9, 3), "low_us = 9"),
        (Lognormal(5, 1000.0), "sigma = 1000.0"),
        (Fixed(10**30), "us = 1000000000000000000000000000000"),
        (Recorded((-4,)), "-4"),
    ],
)
def test_wrong_numbers_are_named(duration: Duration, said: str) -> None:
    assert said in (problem(duration, 1) or "")


def test_a_normal_far_below_zero_counts_as_zero() -> None:
    assert min(Normal(1, 1_000).draw(Random(seed), 0) for seed in range(20)) == 0
