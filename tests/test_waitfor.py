"""Who waits for whom, and the cycles that would never end (E7, E8)."""

from __future__ import annotations

from tsched import waitfor
from tsched.events import JobAdded, PhaseRequested
from tsched.model import Group, Job
from tsched.testing.playbook import Playbook
from tsched.turns import Request

GROUPS = [Group(name) for name in ("g", "h", "i")]


def chain() -> Playbook:
    """a holds g (lease 1) and waits for h; b holds h (lease 2) and waits for i; c holds i (lease 3)."""
    book = Playbook(GROUPS).send(*(JobAdded(Job(name)) for name in "abc"))
    for job, group in zip("abc", "ghi", strict=True):
        book.send(PhaseRequested(job, 1, job, (group,)))
    return book.send(PhaseRequested("a", 2, "a", ("h",), within=1), PhaseRequested("b", 2, "b", ("i",), within=2))


def wish(job: str, *groups: str, within: int | None = None) -> Request:
    return Request((job, 9), job, 9, job, job, 1000, groups, "", 0, None, 0, 9, within)


def ids(book: Playbook, request: Request, target: int) -> list[int] | None:
    found = waitfor.path(book.engine.state, request, target)
    return None if found is None else [lease.id for lease in found]


def test_a_request_waits_for_those_who_hold_what_it_wants() -> None:
    book = chain()
    assert [lease.id for lease in waitfor.blockers(book.engine.state, wish("x", "i", "g"))] == [3, 1]
    assert waitfor.blockers(Playbook(GROUPS).engine.state, wish("x", "i", "g")) == []


def test_a_path_leads_from_who_is_waited_for_to_whom_they_wait_for() -> None:
    book = chain()
    assert ids(book, wish("x", "g"), 1) == [1]
    assert ids(book, wish("x", "g"), 3) == [1, 2, 3]
    assert ids(book, wish("x", "h"), 1) is None
    assert ids(book, wish("x", "h"), 99) is None


def test_a_path_is_found_over_any_of_several_groups() -> None:
    assert ids(chain(), wish("x", "i", "h"), 3) == [3]
    assert ids(chain(), wish("x", "h", "g"), 1) == [1]


def test_a_lease_that_does_not_wait_ends_a_path() -> None:
    assert ids(chain(), wish("x", "i"), 1) is None


def test_a_cycle_is_described_link_by_link() -> None:
    book = chain()
    request = wish("c", "g", within=3)
    found = waitfor.path(book.engine.state, request, 3)
    assert found is not None
    assert waitfor.describe(book.engine.state, request, found) == (
        "job 'c' holds i and waits for g; job 'a' holds g and waits for h; job 'b' holds h and waits for i"
    )
