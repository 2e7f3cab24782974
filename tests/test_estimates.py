"""How long a phase will take: the median of what is known, helped by a prior while that is little (E20)."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tsched.estimates import DEFAULT_US, TRUSTED, WINDOW, Estimates, median

lengths = st.lists(st.integers(0, 10**9), min_size=1, max_size=30)


def seen(*values: int, job: str = "a", phase: str = "train") -> Estimates:
    estimates = Estimates()
    for value in values:
        estimates.observe(job, phase, value)
    return estimates


@given(lengths)
def test_the_median_is_one_of_the_values_with_half_on_either_side(values: list[int]) -> None:
    middle = median(values)
    assert middle in values
    assert 2 * sum(value < middle for value in values) <= len(values)
    assert 2 * sum(value > middle for value in values) <= len(values)


@given(lengths)
def test_what_is_known_well_is_the_median_of_the_last_lengths(values: list[int]) -> None:
    recent = values[-WINDOW:]
    estimates = seen(*values)
    assert estimates.estimate("a", "train") == median(recent)
    if len(recent) >= TRUSTED:
        assert estimates.estimate("a", "train", declared_us=1) == median(recent)


def test_one_slow_phase_does_not_spoil_it() -> None:
    assert seen(10, 11, 10, 900_000, 12).estimate("a", "train") == 11


def test_a_new_job_is_believed_then_its_prior_counts_as_one_length() -> None:
    assert Estimates().estimate("a", "train", 70) == 70
    assert seen(10).estimate("a", "train", 70) == 10
    assert seen(10, 90).estimate("a", "train", 70) == 70
    assert seen(10, 90, 90).estimate("a", "train", 70) == 90


def test_without_a_declared_one_the_prior_is_what_everyone_took() -> None:
    assert seen(5, 6, 7).estimate("b", "train") == 6
    assert seen(5, 6, 7).estimate("b", "generate") == DEFAULT_US


def test_phases_and_jobs_are_kept_apart() -> None:
    estimates = seen(5, 5, 5)
    estimates.observe("a", "generate", 90)
    assert estimates.estimate("a", "train") == 5


def test_a_job_that_left_is_forgotten_but_counts_among_everyone() -> None:
    estimates = seen(5, 5, 5)
    estimates.forget("a")
    estimates.forget("never seen")
    assert estimates.estimate("a", "train", 1) == 1
    assert estimates.estimate("a", "train") == 5


@given(lengths)
def test_estimates_are_plain_data(values: list[int]) -> None:
    estimates = seen(*values)
    assert msgspec.json.decode(msgspec.json.encode(estimates), type=Estimates) == estimates
