"""Whom to evict: the one whose next turn is predicted to be farthest away (R6)."""

from __future__ import annotations

from collections.abc import Callable

from tsched.events import JobAdded, PhaseRequested, PhaseYielded, RequestCancelled
from tsched.eviction import last_to_leave, victims
from tsched.model import Group, Job
from tsched.policies.fifo import Fifo
from tsched.residency import Place
from tsched.testing.playbook import Playbook

NEWCOMER = Job("new", state_bytes={"g": 10})


def ask(job: str, request: int) -> PhaseRequested:
    return PhaseRequested(job, request, job, ("g",))


def residents(*jobs: str, policy: Fifo | None = None) -> Playbook:
    """Each of these jobs fills 10 of the bytes that there are, and has had one turn of 1, one after another."""
    book = Playbook([Group("g", capacity_bytes=10 * len(jobs))], policy).send(JobAdded(NEWCOMER)).at(1)
    for lease, job in enumerate(jobs, start=1):
        book.send(JobAdded(Job(job, state_bytes={"g": 10})), ask(job, 1)).after(1).send(PhaseYielded(lease))
    return book


def away(book: Playbook, job: str, length_us: int) -> Playbook:
    """The job comes back after so long, and yields at once."""
    place = book.engine.state.groups["g"].ledger.places[job]
    book.at(place.left_us + length_us).send(ask(job, 2))
    return book.send(PhaseYielded(max(book.engine.state.leases)))


def held(*jobs: str) -> Playbook:
    """The same, and somebody who takes no room holds the group, so that who asks now waits."""
    book = residents(*jobs).send(JobAdded(Job("holder", state_bytes={"g": 0})))
    return book.send(PhaseRequested("holder", 1, "holder", ("g",)))


def gone(book: Playbook, job: Job = NEWCOMER) -> list[str]:
    return [place.job for place in victims(book.engine.state, book.engine.state.groups["g"], job)]


def test_where_it_fits_nobody_goes() -> None:
    book = residents("a", "b")
    assert gone(book, Job("a", state_bytes={"g": 10})) == []


def test_of_those_of_whom_nothing_is_known_the_first_by_name_goes() -> None:
    assert gone(residents("b", "c", "a")) == ["a"]


def test_who_was_never_seen_to_come_back_goes_before_one_who_was() -> None:
    assert gone(away(residents("a", "b"), "a", 1_000_000)) == ["b"]


def test_who_is_expected_back_last_goes_first() -> None:
    book = away(away(residents("a", "b"), "a", 50), "b", 5_000)
    assert gone(book) == ["b"]


def test_who_waits_goes_after_those_who_do_not() -> None:
    book = held("a", "b", "c")
    book.send(ask("c", 2), ask("a", 2))
    assert gone(book) == ["b"]


def test_of_those_who_wait_the_last_in_line_goes_first() -> None:
    book = held("a", "b", "c")
    book.send(ask("c", 2), ask("a", 2), ask("b", 2))
    assert [gone(book, Job("new", state_bytes={"g": size})) for size in (10, 20)] == [["b"], ["b", "a"]]


def test_who_cancels_no_longer_waits() -> None:
    book = held("a", "b", "c").send(ask("c", 2), ask("a", 2), ask("b", 2), RequestCancelled("a", 2))
    assert gone(book) == ["a"]


def test_who_was_brought_in_early_and_passed_over_goes_first() -> None:
    """R7: even before those who do not wait, unless its turn is what the room is for."""
    book = held("a", "b", "c").send(ask("c", 2))
    group = book.engine.state.groups["g"]
    assert gone(book) == ["a"]
    group.ledger.places["c"].prefetched = True
    assert gone(book) == ["c"]
    group.selected = book.engine.state.requests["c", 2]
    assert gone(book) == ["a"]


def test_a_policy_may_bring_its_own_order() -> None:
    class Backwards(Fifo):
        def eviction_order(self, resident: list[Place], due: Callable[[Place], int]) -> list[Place]:
            return sorted(resident, key=lambda place: place.job, reverse=True)

    assert gone(residents("a", "b", "c", policy=Backwards())) == ["c"]


def test_the_last_to_leave_is_the_one_whose_turn_ended_last_and_who_did_not_ask_again() -> None:
    book = residents("a", "b", "c")
    group = book.engine.state.groups["g"]
    assert last_to_leave(group) == "c"
    book.send(ask("c", 2))
    assert last_to_leave(group) == "b"
    assert last_to_leave(Playbook([Group("g")]).engine.state.groups["g"]) is None
