"""Groups and jobs are checked when they are made, and say what would be right."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsched.errors import Invalid
from tsched.model import SECOND_US, Group, Job, seconds


@given(st.integers(0, 10**13))
def test_seconds_are_whole_microseconds(value_us: int) -> None:
    assert seconds(value_us / SECOND_US) == value_us


@pytest.mark.parametrize("value", [-1e-9, float("nan"), float("inf"), -float("inf")])
def test_a_duration_is_finite_and_not_negative(value: float) -> None:
    with pytest.raises(Invalid, match="finite number of seconds >= 0"):
        seconds(value)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"name": ""}, "a group needs a name"),
        ({"name": "g", "nodes": ()}, "at least one"),
        ({"name": "g", "nodes": ("n", "n")}, "distinct names"),
        ({"name": "g", "capacity_bytes": 0}, "capacity_bytes must be > 0, or left out where unknown, not 0"),
        ({"name": "g", "retries": -1}, "retries must be >= 0, not -1"),
        ({"name": "g", "lease_ttl_us": 0}, "lease_ttl_us must be > 0, not 0"),
        ({"name": "g", "max_hold_us": -5}, "max_hold_us must be > 0, not -5"),
        ({"name": "g", "max_phase_us": 0}, "max_phase_us must be > 0, not 0"),
        ({"name": "g", "move_timeout_us": 0}, "move_timeout_us must be > 0, not 0"),
    ],
)
def test_a_wrong_group_says_what_would_be_right(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(Invalid, match=text):
        Group(**fields)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"name": ""}, "a job needs a name"),
        ({"name": "a", "weight": 0}, "weight must be a finite number > 0, at most 1e9, not 0"),
        ({"name": "a", "weight": float("nan")}, "weight must be"),
        ({"name": "a", "weight": float("inf")}, "weight must be"),
        ({"name": "a", "state_bytes": {"g": -1}}, "state_bytes on group 'g' must be >= 0, not -1"),
        ({"name": "a", "turn_bytes": {"g": -1}}, "turn_bytes on group 'g' must be >= 0, not -1"),
    ],
)
def test_a_wrong_job_says_what_would_be_right(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(Invalid, match=text):
        Job(**fields)


def test_a_jobs_turns_are_charged_to_its_owner_or_else_to_itself() -> None:
    assert Job("a").account == "a"
    assert Job("a", owner="team").account == "team"


def test_a_weight_counts_in_thousandths_and_never_as_nothing() -> None:
    assert [Job("a", weight=weight).weight_milli for weight in (1, 2.5, 0.0001)] == [1000, 2500, 1]


@pytest.mark.parametrize("thing", [Group("g", 5, ("n", "m"), 1), Job("a", "o", 2, {"g": 1}, {"g": 2}, 3)])
def test_groups_and_jobs_are_plain_data(thing: Group | Job) -> None:
    assert msgspec.json.decode(msgspec.json.encode(thing), type=type(thing)) == thing
    with pytest.raises(msgspec.ValidationError, match="unknown field `colour`"):
        msgspec.convert({"name": "x", "colour": 1}, type(thing))
