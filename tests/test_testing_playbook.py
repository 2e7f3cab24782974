"""A playbook fails where the engine answers anything else than it says."""

from __future__ import annotations

import pytest

from tsched.commands import Grant, Park, Select, WakeAt
from tsched.events import JobAdded, PhaseRequested, PhaseYielded
from tsched.model import Group, Job
from tsched.testing.playbook import Playbook, like

ASK = PhaseRequested("c", 1, "a", ("g",))


def asked(lease_ttl_us: int | None = None) -> Playbook:
    return Playbook([Group("g", lease_ttl_us=lease_ttl_us)]).send(JobAdded(Job("a")), ASK)


def test_a_command_is_expected_whole_or_by_some_of_its_fields() -> None:
    asked().expect(Grant(1, "c", 1, "a", {"g": 1}))
    asked().expect(like(Grant, job="a", tokens={"g": 1}))
    asked().expect(like(Grant))


@pytest.mark.parametrize(
    "wrong",
    [
        (),
        (like(Grant, job="b"),),
        (Grant(1, "c", 1, "a", {"g": 2}),),
        (like(Park),),
        (like(Grant), like(Grant)),
        (like(Select), like(Grant)),
    ],
)
def test_anything_else_than_expected_fails_and_is_shown(wrong: tuple[Grant, ...]) -> None:
    with pytest.raises(
        AssertionError, match=r"(?s)after\n  at 0: JobAdded.*expected\n.*but the engine answered\n  Grant"
    ):
        asked().expect(*wrong)


def test_a_field_that_no_such_command_has_is_a_mistake_of_the_playbook() -> None:
    with pytest.raises(TypeError, match=r"Grant has no field 'colour'; it has lease, client"):
        like(Grant, colour=1)


def test_who_is_next_and_wake_ups_may_be_passed_over_but_not_be_wrong() -> None:
    book = asked(lease_ttl_us=30)
    assert [type(command) for command in book.answers] == [Grant, WakeAt]
    with pytest.raises(AssertionError, match="WakeAt"):
        book.expect(like(Grant), WakeAt(31))
    book.expect(like(Grant), WakeAt(30))


def test_what_was_answered_is_expected_once() -> None:
    asked().skip().expect().send(PhaseYielded(1)).expect()


def test_time_passes_over_every_wake_up_and_never_back() -> None:
    book = asked(lease_ttl_us=30).skip().at(29).expect().after(1)
    assert [type(command).__name__ for command in book.answers] == ["Revoke", "Park"]
    assert [now for now, _, _ in book.log] == [0, 0, 30]
    with pytest.raises(ValueError, match="time cannot go back from 30 to 29"):
        book.at(29)
