"""Quantiles and confidence intervals, against values from the books."""

from __future__ import annotations

from random import Random

import pytest

from tsched.sim.statistics import ci95, mean, quantile


def test_quantiles_interpolate() -> None:
    assert quantile([1, 2, 3, 4], 0.5) == 2.5
    assert quantile([1, 2, 3, 4], 0.0) == 1
    assert quantile([1, 2, 3, 4], 1.0) == 4
    assert quantile([7], 0.95) == 7
    assert quantile([], 0.5) == 0


def test_an_interval_of_known_values() -> None:
    assert ci95([1.0, 2.0, 3.0]) == pytest.approx(4.303 * 1.0 / 3**0.5)
    assert ci95([5.0]) == 0
    assert ci95([2.0] * 40) == 0


def test_intervals_hold_the_true_mean_about_as_often_as_they_say() -> None:
    rng = Random(7)
    held = 0
    for _ in range(1000):
        values = [rng.gauss(3.0, 2.0) for _ in range(10)]
        held += abs(mean(values) - 3.0) <= ci95(values)
    assert 930 <= held <= 970
