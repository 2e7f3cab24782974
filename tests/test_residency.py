"""The ledger of one group: what counts, what fits, and who must go (R1 to R4, R6)."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tsched.model import Group, Job
from tsched.residency import Ledger, Place, Standing

JOBS = ("a", "b", "c", "d")


def ledger(capacity: int | None, **sizes: int) -> Ledger:
    book = Ledger(Group("g", capacity_bytes=capacity))
    for job, size in sizes.items():
        book.add(Place(job, Standing.RESIDENT, size))
    return book


def job(name: str, state: int | None = None, turn: int = 0) -> Job:
    return Job(name, state_bytes={} if state is None else {"g": state}, turn_bytes={"g": turn})


def test_a_job_of_unknown_size_fills_its_group() -> None:
    """R4"""
    assert ledger(100).size(job("a")) == 100
    assert ledger(100).size(job("a", 30)) == 30


def test_where_capacity_is_unknown_every_state_fills_it_and_working_memory_is_no_matter() -> None:
    """R4"""
    exclusive = ledger(None)
    assert [exclusive.size(job("a", state)) for state in (None, 1, 10**12, 0)] == [1, 1, 1, 0]
    assert exclusive.working(job("a", 1, turn=10**12)) == 0
    assert not exclusive.never_fits(job("a", 10**12, turn=10**12))


@pytest.mark.parametrize(("state", "turn", "never"), [(100, 0, False), (99, 1, False), (100, 1, True), (101, 0, True)])
def test_what_is_more_than_the_group_has_never_fits(state: int, turn: int, never: bool) -> None:
    """E6"""
    assert ledger(100).never_fits(job("a", state, turn)) is never


def test_who_is_on_the_device_needs_its_working_memory_alone() -> None:
    """R1"""
    book = ledger(100, a=60)
    assert book.needed(job("a", 60, turn=10)) == 10
    assert book.needed(job("b", 30, turn=10)) == 40
    book.set_on_device(book.places["a"], False)
    assert (book.used, book.needed(job("a", 60, turn=10))) == (0, 70)


def test_what_is_leaving_counts_until_it_is_gone_but_nobody_more_need_go_for_it() -> None:
    """R2, R6"""
    book = ledger(100, a=60, b=40)
    book.places["a"].standing = Standing.PARKING
    assert not book.fits(60)
    assert book.shortfall(job("c", 60)) == 0
    assert book.shortfall(job("c", 61)) == 1


def test_a_departure_of_the_jobs_own_state_does_not_make_room_for_it() -> None:
    """R2: what is on its way out must come in again."""
    book = ledger(100, a=60, b=40)
    book.places["a"].standing = Standing.PARKING
    assert book.shortfall(job("a", 60, turn=10)) == 10


def test_those_who_move_or_take_no_room_cannot_be_evicted() -> None:
    book = ledger(100, a=10, b=0, c=10, d=10)
    book.places["c"].standing = Standing.RESTORING
    assert [place.job for place in book.evictable(keep="d")] == ["a"]


def test_a_job_that_is_gone_keeps_the_size_that_it_had() -> None:
    """R2, E17"""
    book = ledger(100, a=60)
    book.places["a"].doomed = True
    book.resize(job("a", 5))
    assert book.used == 60
    book.resize(job("unknown", 5))


@given(
    st.lists(
        st.tuples(
            st.sampled_from(("add", "remove", "resize", "on", "off", "unsafe", "safe")),
            st.sampled_from(JOBS),
            st.integers(0, 120),
        )
    )
)
def test_bytes_and_unsafe_jobs_are_always_what_the_places_add_up_to(steps: list[tuple[str, str, int]]) -> None:
    """R1, E5"""
    book = ledger(100)
    for step, name, size in steps:
        place = book.places.get(name)
        if step == "add" and place is None:
            book.add(Place(name, Standing.RESIDENT, size, on_device=size % 2 == 0, unsafe=size % 3 == 0))
        elif place is None:
            continue
        elif step == "remove":
            book.remove(name)
        elif step == "resize":
            book.resize(job(name, size))
        elif step in ("on", "off"):
            book.set_on_device(place, step == "on")
        else:
            book.set_unsafe(place, step == "unsafe")
        assert book.used == sum(place.size_bytes for place in book.places.values() if place.on_device)
        assert book.unsafe == sum(place.unsafe for place in book.places.values())


orders = st.lists(st.integers(1, 20), max_size=6).map(
    lambda sizes: [Place(f"job {index}", Standing.RESIDENT, size) for index, size in enumerate(sizes)]
)


@given(orders, st.integers(1, 60))
def test_nobody_goes_whose_bytes_turn_out_not_to_be_needed(order: list[Place], shortfall: int) -> None:
    """R6"""
    chosen = ledger(100).victims(shortfall, order)
    freed = sum(place.size_bytes for place in chosen)
    if sum(place.size_bytes for place in order) >= shortfall:
        assert all(freed - place.size_bytes < shortfall for place in chosen)


def test_victims_come_from_the_front_of_the_order() -> None:
    """R6: and those whom a later one makes needless stay."""
    order = [Place("a", Standing.RESIDENT, 10), Place("b", Standing.RESIDENT, 10), Place("c", Standing.RESIDENT, 90)]
    assert [place.job for place in ledger(200).victims(5, order)] == ["a"]
    assert [place.job for place in ledger(200).victims(15, order)] == ["a", "b"]
    assert [place.job for place in ledger(200).victims(50, order)] == ["c"]
    assert ledger(200).victims(0, order) == []


def test_when_all_that_can_go_does_not_suffice_all_of_it_goes() -> None:
    order = [Place("a", Standing.RESIDENT, 10), Place("b", Standing.RESIDENT, 10)]
    assert ledger(200).victims(50, order) == order


@given(orders, st.integers(1, 60))
@example([Place(name, Standing.RESIDENT, size) for name, size in (("a", 5), ("b", 5), ("c", 10))], 12)
def test_victims_free_what_is_short_if_anything_can(order: list[Place], shortfall: int) -> None:
    """R6"""
    chosen = ledger(100).victims(shortfall, order)
    freed = sum(place.size_bytes for place in chosen)
    assert freed >= min(shortfall, sum(place.size_bytes for place in order))
