"""The engine's rules, one playbook each: what happens, what it answers."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tsched.commands import (
    Discard,
    Grant,
    Hold,
    Ignore,
    Park,
    Quarantine,
    Refuse,
    Restore,
    Revoke,
    Select,
    Suspend,
    WakeAt,
)
from tsched.engine import Engine
from tsched.events import (
    Discarded,
    EvictionForced,
    JobAdded,
    JobLeft,
    JobLost,
    JobReadmitted,
    JobUpdated,
    LeaseRenewed,
    MoveFailed,
    NodeLost,
    NodeReturned,
    Parked,
    PhaseRequested,
    PhaseYielded,
    RequestCancelled,
    Restarted,
    Restored,
    Woke,
)
from tsched.model import Group, Job
from tsched.policies import Policy
from tsched.policies.fair_share import FairShare
from tsched.policies.fifo import Fifo
from tsched.policies.least_recently_served import LeastRecentlyServed
from tsched.policies.longest_remaining_first import LongestRemainingFirst
from tsched.policies.round_robin import RoundRobin
from tsched.policies.shortest_phase_first import ShortestPhaseFirst
from tsched.testing.playbook import Playbook, like

ALONE = Group("g")
ROOMY = Group("g", capacity_bytes=100)
PAIR = (ROOMY, Group("h", capacity_bytes=100))
TRIO = (*PAIR, Group("i", capacity_bytes=100))
BRISK = Group("g", capacity_bytes=100, max_phase_us=10, suspendable=True)


def add(job: str, *, turn: int = 0, **state: int) -> JobAdded:
    """`add("a", g=40)`: a job with 40 bytes of state on group g, and `turn` working bytes on g."""
    return JobAdded(Job(job, state_bytes=state, turn_bytes={"g": turn} if turn else {}))


def resized(job: str, **state: int) -> JobUpdated:
    return JobUpdated(Job(job, state_bytes=state))


def ask(
    job: str,
    *groups: str,
    request: int = 1,
    client: str = "",
    estimate: int | None = None,
    within: int | None = None,
    ttl: int | None = None,
    phase: str = "",
) -> PhaseRequested:
    """A request of the job's own client, unless another is named, for group g, unless others are named."""
    wanted = groups or ("g",)
    return PhaseRequested(client or job, request, job, wanted, phase, estimate, None, within, ttl)


def small(*jobs: str) -> list[JobAdded]:
    """Jobs that take one byte on every group: they are all resident, and memory plays no part."""
    return [add(job, g=1, h=1, i=1) for job in jobs]


def second_in(group: Group, policy: Policy | None = None) -> Playbook:
    """Jobs a and b, which do not fit together: a had a turn, then b, for whom a was parked (operation 1)."""
    book = Playbook([group], policy).send(add("a", g=60), add("b", g=60), ask("a"), ask("b"), PhaseYielded(1))
    return book.send(Parked(1, "0")).skip()


# ------------------------------------------------------------------------------------------------- turns


def test_an_idle_group_is_granted_at_once() -> None:
    Playbook([ALONE]).send(add("a")).expect().at(5).send(ask("a")).expect(Grant(1, "a", 1, "a", {"g": 1}))


def test_a_first_turn_needs_no_restore() -> None:
    Playbook([ROOMY]).send(add("a", g=100), ask("a")).expect(like(Grant, job="a", restored=False))


def test_one_job_at_a_time_holds_a_group_and_the_next_is_chosen_at_the_yield() -> None:
    """E3, E5"""
    book = Playbook([ROOMY]).send(*small("a", "b", "c"), ask("a"), ask("b"), ask("c")).expect(like(Grant, job="a"))
    book.at(7).send(PhaseYielded(1)).expect(Grant(2, "b", 1, "b", {"g": 2}, waited_us=7))
    book.send(RequestCancelled("c", 1), PhaseYielded(2)).expect()


def test_who_is_next_is_decided_at_the_yield_and_not_before() -> None:
    """E3: a shorter phase that arrives during the turn goes first."""
    book = Playbook([ROOMY], ShortestPhaseFirst()).send(*small("a", "b", "c"), ask("a"), ask("b", estimate=900)).skip()
    book.send(ask("c", estimate=5), PhaseYielded(1)).expect(like(Grant, job="c"))


def test_a_selection_stands_until_it_is_granted() -> None:
    """E3: c has the shorter phase, but b's state was already on its way."""
    book = second_in(ALONE, ShortestPhaseFirst()).send(
        add("c", g=60), ask("a", request=2, estimate=900), PhaseYielded(2)
    )
    book.expect(Select("g", "a", 2), like(Park, job="b"))
    book.send(ask("c", estimate=1), Parked(2, "0")).expect(like(Restore, op=3, job="a"))
    book.send(Restored(3, "0")).expect(like(Grant, job="a", restored=True))


def test_a_selection_that_is_cancelled_makes_room_for_the_next() -> None:
    """E3, E19"""
    book = second_in(ALONE).send(add("c", g=60), ask("a", request=2), ask("c"), PhaseYielded(2)).skip()
    book.send(RequestCancelled("a", 2)).expect(Select("g", "c", 1)).send(Parked(2, "0")).expect(like(Grant, job="c"))


def test_a_request_is_known_by_client_and_number() -> None:
    """E2: asked twice while it waits, it is granted once; asked after the grant, it is answered with the lease."""
    book = Playbook([ROOMY]).send(*small("a", "b"), ask("a"), ask("b"), ask("b")).expect(like(Grant, job="a"))
    book.send(PhaseYielded(1)).expect(like(Grant, lease=2, job="b", tokens={"g": 2}))
    book.send(ask("b")).expect(like(Grant, lease=2, job="b", tokens={"g": 2}))
    book.send(PhaseYielded(2)).expect()


def test_another_client_of_the_same_job_is_another_request() -> None:
    """E2, E5: one at a time, all the same."""
    book = Playbook([ROOMY]).send(*small("a"), ask("a"), ask("a", client="a2")).expect(like(Grant, client="a"))
    book.send(PhaseYielded(1)).expect(like(Grant, client="a2"))


@pytest.mark.parametrize(
    ("request_", "code", "text"),
    [
        (ask("a", "nowhere"), "unknown_group", "no group 'nowhere'; there are: g, h"),
        (ask("z"), "unknown_job", "job 'z' is not registered"),
        (ask("a", "g", "g"), "bad_request", "each group once"),
        (PhaseRequested("a", 1, "a", ()), "bad_request", "at least one"),
        (ask("a", within=9), "unknown_lease", "lease 9"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused_at_once(request_: PhaseRequested, code: str, text: str) -> None:
    """E2"""
    book = Playbook(PAIR).send(*small("a"), request_)
    (refusal,) = book.answers
    assert isinstance(refusal, Refuse)
    assert refusal.code == code
    assert text in refusal.detail
    book.skip().send(ask("a", request=2)).expect(like(Grant, request=2))


@pytest.mark.parametrize("policy", [FairShare, RoundRobin, LeastRecentlyServed])
def test_a_request_that_names_a_group_twice_leaves_nothing_behind_in_flows(policy: type[Policy]) -> None:
    """E2, E1"""
    book = Playbook([ROOMY], policy()).send(*small("a"), ask("a", "g", "g")).expect(like(Refuse, code="bad_request"))
    book.send(ask("a", request=2)).expect(like(Grant, request=2))


def test_a_request_that_names_a_group_twice_leaves_nothing_behind() -> None:
    """E2, R6"""
    book = Playbook([ROOMY]).send(*small("a"), ask("a", "g", "g")).expect(like(Refuse, code="bad_request"))
    assert not book.engine.state.groups["g"].by_job


@pytest.mark.parametrize(
    "stale",
    [
        PhaseYielded(7),
        LeaseRenewed(7),
        RequestCancelled("a", 7),
        Parked(7, "0"),
        Restored(7, "0"),
        Discarded(7, "0"),
        MoveFailed(7, "0"),
        JobUpdated(Job("z")),
        JobLeft("z"),
        JobLost("z"),
        JobReadmitted("a"),
        JobAdded(Job("a")),
        NodeReturned("g", "0"),
        NodeLost("g", "9"),
        NodeLost("nowhere", "0"),
        EvictionForced("g", "a"),
        EvictionForced("nowhere", "a"),
    ],
)
def test_an_event_that_names_nothing_that_is_there_is_ignored(stale: object) -> None:
    """E1"""
    Playbook([ALONE]).send(add("a"), stale).expect(like(Ignore))  # type: ignore[arg-type]


def test_a_move_is_answered_once_for_each_node() -> None:
    """R3: and a second answer of one node does not stand for the other."""
    book = Playbook([Group("g", nodes=("n", "m"))]).send(add("a"), add("b"), ask("a"), ask("b"), PhaseYielded(1))
    book.expect(like(Grant, job="a"), like(Park, op=1, nodes=("n", "m")))
    book.send(Parked(1, "n"), Parked(1, "n")).expect(like(Ignore)).send(Parked(1, "m")).expect(like(Grant, job="b"))
    book.send(Parked(1, "m")).expect(like(Ignore))


def test_tokens_strictly_increase_over_grants_and_moves() -> None:
    """E4"""
    book = second_in(ALONE).send(ask("a", request=2), PhaseYielded(2), Parked(2, "0"), Restored(3, "0"))
    book.expect(like(Park, token=4), like(Restore, token=5), like(Grant, tokens={"g": 6}))


def test_time_never_goes_back() -> None:
    """E1: an event that carries an earlier time is taken at the present one."""
    engine = Engine([ALONE], Fifo())
    engine.handle(add("a"), 50)
    engine.handle(ask("a"), 20)
    assert engine.state.now == engine.state.leases[1].granted_us == 50


def test_a_waiter_that_cancels_leaves_no_ghost() -> None:
    """E19: the group goes to the one behind it."""
    book = Playbook([ROOMY]).send(*small("a", "b", "c"), ask("a"), ask("b"), ask("c"), RequestCancelled("b", 1)).skip()
    book.send(PhaseYielded(1)).expect(like(Grant, job="c"))


def test_a_yield_gives_a_lease_back_once() -> None:
    """E11"""
    book = Playbook([ROOMY]).send(*small("a", "b", "c"), ask("a"), ask("b"), ask("c"), PhaseYielded(1)).skip()
    book.send(PhaseYielded(1)).expect(Ignore("lease 1 has ended"))


# ------------------------------------------------------------------------------------------------ memory


def test_a_group_of_unknown_capacity_holds_one_job_at_a_time() -> None:
    """R4"""
    book = Playbook([ALONE]).send(add("a", g=1), add("b", g=1), ask("a"), ask("b")).skip()
    book.send(PhaseYielded(1)).expect(like(Park, op=1, job="a")).send(Parked(1, "0")).expect(like(Grant, job="b"))


def test_jobs_that_fit_together_stay_resident_and_a_turn_costs_no_switch() -> None:
    """R1"""
    book = Playbook([ROOMY]).send(add("a", g=60), add("b", g=40), ask("a"), ask("b"), PhaseYielded(1))
    book.expect(like(Grant, job="a"), like(Grant, job="b"))
    book.send(ask("a", request=2), PhaseYielded(2)).expect(like(Grant, job="a", restored=False))


def test_working_memory_counts_during_a_turn() -> None:
    """R1, E5: both states fit, but not with b's working bytes on top."""
    book = Playbook([ROOMY]).send(add("a", g=50), add("b", g=40, turn=20), ask("a"), ask("b"), PhaseYielded(1))
    book.expect(like(Grant, job="a"), like(Park, job="a")).send(Parked(1, "0")).expect(like(Grant, job="b"))


def test_nobody_is_parked_while_nobody_needs_the_room() -> None:
    """R5"""
    book = Playbook([ALONE]).send(add("a"), ask("a")).skip().send(PhaseYielded(1)).at(10**9).expect()
    book.send(ask("a", request=2)).expect(like(Grant, job="a", restored=False))


def test_a_park_is_memory_only_once_it_was_seen_free() -> None:
    """R2: b is granted on Parked, and not before."""
    book = second_in(ROOMY)
    book.send(ask("a", request=2), PhaseYielded(2)).expect(like(Park, op=2, job="b", size_bytes=60))
    book.send(add("c", g=40), ask("c")).expect().send(Parked(2, "0")).expect(like(Restore, op=3, job="a"))


def test_a_restore_begins_while_others_are_still_parked() -> None:
    """R3: a's state fits as soon as x is out; its turn, with its working memory, needs y out too."""
    jobs = [add("a", g=40, turn=50), add("x", g=40), add("y", g=40)]
    book = Playbook([ROOMY]).send(*jobs, ask("a"), PhaseYielded(1), ask("x"), PhaseYielded(2), ask("y"))
    book.send(Parked(1, "0"), PhaseYielded(3)).skip()
    book.send(ask("a", request=2)).expect(like(Park, op=2, job="x"), like(Park, op=3, job="y"))
    book.send(Parked(2, "0")).expect(like(Restore, op=4, job="a")).send(Restored(4, "0")).expect()
    book.send(Parked(3, "0")).expect(like(Grant, job="a", restored=True))


def test_a_turn_waits_for_the_departures_that_it_needs_and_no_others() -> None:
    """R3: a leaves for good; b does not need its bytes."""
    book = Playbook([ROOMY]).send(add("a", g=40), add("b", g=40), ask("a"), PhaseYielded(1), JobLeft("a"))
    book.expect(like(Grant, job="a"), like(Discard, job="a")).send(ask("b")).expect(like(Grant, job="b"))


def test_a_job_of_unknown_size_fills_its_group() -> None:
    """R4"""
    book = Playbook([ROOMY]).send(add("a"), add("b", g=1), ask("a"), ask("b"), PhaseYielded(1))
    book.expect(like(Grant, job="a"), like(Park, job="a"))


def test_a_job_of_unknown_size_may_declare_working_memory() -> None:
    """R4, E6: it fills its group, working memory included."""
    Playbook([ROOMY]).send(add("a", turn=10), ask("a")).expect(like(Grant, job="a"))


def test_a_job_without_state_needs_no_room() -> None:
    """R1: not even beside one that fills an exclusive group."""
    book = Playbook([ALONE]).send(add("a"), add("b", g=0), ask("a"), ask("b"), PhaseYielded(1))
    book.expect(like(Grant, job="a"), like(Grant, job="b"))
    book.send(ask("a", request=2), PhaseYielded(2)).expect(like(Grant, job="a"))


def test_what_never_fits_is_refused_with_the_numbers() -> None:
    """E6"""
    detail = "job 'a' needs 90 state and 20 working bytes on group 'g', which has 100"
    Playbook([ROOMY]).send(add("a", g=90, turn=20), ask("a")).expect(Refuse("a", 1, "never_fits", detail))


def test_a_job_that_grows_while_it_waits_is_refused_and_the_next_is_granted() -> None:
    """E6"""
    book = Playbook([ROOMY]).send(*small("a", "b", "c"), ask("a"), ask("b"), ask("c"), resized("b", g=101)).skip()
    book.send(PhaseYielded(1)).expect(like(Refuse, client="b", code="never_fits"), like(Grant, job="c"))


def test_a_job_that_shrinks_makes_room() -> None:
    """R1"""
    book = second_in(ROOMY).send(PhaseYielded(2), add("c", g=60)).expect()
    book.send(ask("c")).expect(like(Park, job="b")).send(resized("b", g=10)).expect(like(Grant, job="c"))


def test_the_state_of_the_next_is_brought_in_beside_the_holder_where_it_fits() -> None:
    """R7: and then its turn begins at the yield."""
    book = second_in(ROOMY).send(resized("a", g=40)).send(ask("a", request=2)).expect(like(Restore, op=2, job="a"))
    book.send(Restored(2, "0"), PhaseYielded(2)).expect(like(Grant, job="a", restored=True))


def test_prefetch_does_not_evict_anybody() -> None:
    """R7"""
    second_in(ROOMY).send(ask("a", request=2)).expect()


def test_prefetch_leaves_the_holder_its_working_memory() -> None:
    """R7, R1"""
    book = Playbook([ROOMY]).send(add("a", g=50), add("b", g=50, turn=50), ask("a"), ask("b"), PhaseYielded(1))
    book.send(Parked(1, "0")).skip().send(ask("a", request=2)).expect()


def test_prefetch_can_be_turned_off() -> None:
    """R7"""
    book = second_in(Group("g", capacity_bytes=100, prefetch=False)).send(resized("a", g=40), ask("a", request=2))
    book.expect().send(PhaseYielded(2)).expect(like(Restore, op=2, job="a"))


def three_parked(policy: Policy) -> Playbook:
    """Jobs b and c of 30 bytes are parked (operations 1 and 2), and h, with 40, holds the group."""
    jobs = [add("b", g=30), add("c", g=30), add("f", g=90), add("h", g=40)]
    book = Playbook([ROOMY], policy).send(*jobs, ask("b"), PhaseYielded(1), ask("c"), PhaseYielded(2), ask("f"))
    book.send(Parked(1, "0"), Parked(2, "0"), PhaseYielded(3), ask("h"), Parked(3, "0")).skip()
    assert book.engine.state.groups["g"].holder is not None
    return book


def test_one_prefetch_a_group_is_under_way() -> None:
    """R7"""
    book = three_parked(ShortestPhaseFirst()).send(ask("b", request=2, estimate=50, phase="next"))
    book.expect(like(Restore, op=4, job="b")).send(ask("c", request=2, estimate=1, phase="next")).expect()
    book.send(Restored(4, "0")).expect(like(Restore, op=5, job="c"))


def test_who_was_brought_in_early_and_passed_over_is_the_first_victim() -> None:
    """R7, R6: b goes although it is next in line, h stays although it waits for nothing."""
    book = three_parked(ShortestPhaseFirst()).send(ask("b", request=2, estimate=500, phase="next"), Restored(4, "0"))
    book.skip().send(add("d", g=50), ask("d", estimate=1), PhaseYielded(4)).expect(like(Park, job="b"))


def test_a_selection_is_who_a_group_is_made_ready_for() -> None:
    """R6: the victim is the one who does not wait."""
    jobs = [add("a", g=40), add("b", g=40), add("c", g=40)]
    book = Playbook([ROOMY]).send(*jobs, ask("a"), PhaseYielded(1), ask("b"), ask("c"), ask("a", request=2)).skip()
    book.send(PhaseYielded(2)).expect(Select("g", "c", 1), like(Park, job="b"))


def test_victims_that_suffice_are_parked_at_the_same_time() -> None:
    """R6, R3: 12 bytes are needed; a (5) and c (10) go together, not one after the other."""
    book = Playbook([Group("g", capacity_bytes=20)]).send(add("a", g=5), add("b", g=5), add("c", g=10), add("d", g=12))
    for lease, job in enumerate("abc", start=1):
        book.send(ask(job), PhaseYielded(lease)).after(1)
    book.skip().send(ask("d"))
    assert sum(command.size_bytes for command in book.answers if isinstance(command, Park)) >= 12


# ---------------------------------------------------------------------------------------- several groups


def test_several_groups_are_granted_all_at_once_or_not_at_all() -> None:
    """E9"""
    book = Playbook(PAIR).send(*small("a", "b"), ask("a", "g"), ask("b", "g", "h")).expect(like(Grant, job="a"))
    book.send(PhaseYielded(1)).expect(like(Grant, job="b", tokens={"g": 2, "h": 1}))


def test_a_reservation_takes_what_comes_free_before_those_behind_it() -> None:
    """E9: h is free, but b reserved it."""
    book = Playbook(PAIR).send(*small("a", "b", "c"), ask("a", "g"), ask("b", "h", "g")).skip()
    book.send(ask("c", "h")).expect().send(PhaseYielded(1)).expect(like(Grant, job="b"))
    book.send(PhaseYielded(2)).expect(like(Grant, job="c"))


def test_reservations_in_opposite_order_do_not_lock() -> None:
    """E9"""
    book = Playbook(PAIR).send(*small("a", "b", "c"), ask("a", "g"), ask("b", "g", "h"), ask("c", "h", "g")).skip()
    book.send(PhaseYielded(1)).expect(like(Grant, job="b")).send(PhaseYielded(2)).expect(like(Grant, job="c"))


def test_a_part_of_a_lease_can_be_given_back() -> None:
    """E11"""
    book = Playbook(PAIR).send(*small("a", "b"), ask("a", "g", "h"), ask("b", "g")).expect(like(Grant, job="a"))
    book.send(PhaseYielded(1, ("g",))).expect(like(Grant, job="b"))
    assert book.engine.state.leases[1].tokens == {"h": 1}
    book.send(PhaseYielded(1)).expect().send(PhaseYielded(1)).expect(like(Ignore))


def test_a_lease_that_was_given_back_in_parts_counts_as_one_phase() -> None:
    """E11, E20"""
    book = Playbook(PAIR).send(*small("a"), ask("a", "g", "h")).at(5).send(PhaseYielded(1, ("g",))).at(9)
    book.send(PhaseYielded(1))
    assert book.engine.state.estimates.own["a"] == {"": [9]}


def test_a_part_that_is_no_longer_held_is_ignored() -> None:
    """E11"""
    book = Playbook(PAIR).send(*small("a"), ask("a", "g", "h"), PhaseYielded(1, ("g",))).skip()
    book.send(PhaseYielded(1, ("g",))).expect(like(Ignore))


def test_a_nested_request_waits_while_its_lease_goes_on() -> None:
    """E8"""
    book = (
        Playbook(PAIR).send(*small("a", "b"), ask("a", "g"), ask("b", "h"), ask("a", "h", request=2, within=1)).skip()
    )
    book.send(PhaseYielded(2)).expect(like(Grant, job="a", lease=3, tokens={"h": 2}))
    book.send(ask("b", "g", request=2), PhaseYielded(1)).expect(like(Grant, job="b"))


def test_a_lease_waits_for_one_nested_request_at_a_time() -> None:
    """E8"""
    book = Playbook(TRIO).send(*small("a", "b"), ask("a", "g"), ask("b", "h", "i"), ask("a", "h", request=2, within=1))
    book.skip().send(ask("a", "i", request=3, within=1)).expect(like(Refuse, request=3, code="bad_request"))
    book.send(RequestCancelled("a", 2), ask("a", "i", request=4, within=1)).expect()


def test_a_nested_request_for_what_is_held_already_is_refused() -> None:
    """E8"""
    book = Playbook(PAIR).send(*small("a"), ask("a", "g")).skip()
    book.send(ask("a", "g", request=2, within=1)).expect(like(Refuse, code="already_held"))


def test_a_nested_request_goes_before_a_reservation_that_waits_for_its_holder() -> None:
    """E8: b reserved h while it waits for a's g; a needs h to go on."""
    book = Playbook(PAIR).send(*small("a", "b"), ask("a", "g"), ask("b", "g", "h")).skip()
    book.send(ask("a", "h", request=2, within=1)).expect(like(Grant, job="a", tokens={"h": 1}))
    book.send(PhaseYielded(2), PhaseYielded(1)).expect(like(Grant, job="b"))


def test_a_nested_request_does_not_go_before_a_reservation_that_waits_for_others() -> None:
    """E8"""
    book = Playbook(TRIO).send(*small("a", "b", "c"), ask("a", "g"), ask("c", "i"), ask("b", "i", "h")).skip()
    book.send(ask("a", "h", request=2, within=1)).expect().send(PhaseYielded(2)).expect(like(Grant, job="b"))


def test_a_nested_request_goes_before_a_reservation_that_is_made_after_it() -> None:
    """E8, E19: x yields g, b reserves it and waits for a's h, and a needs g to go on: nobody would ever be served."""
    book = Playbook(PAIR).send(*small("a", "b", "x"), ask("a", "h"), ask("x", "g"), ask("b", "g", "h")).skip()
    book.send(ask("a", "g", request=2, within=1)).expect().send(PhaseYielded(2))
    book.expect(like(Grant, job="a", request=2))


def test_a_nested_request_is_refused_when_its_lease_is_lost() -> None:
    """E12, E19"""
    groups = (Group("g", capacity_bytes=100, lease_ttl_us=10), PAIR[1])
    book = Playbook(groups).send(*small("a", "b"), ask("a", "g"), ask("b", "h"), ask("a", "h", request=2, within=1))
    book.skip().at(10).expect(like(Revoke, lease=1), like(Refuse, request=2, code="unknown_lease"), like(Park, job="a"))


def test_a_cycle_of_two_is_refused_and_named() -> None:
    """E7"""
    book = (
        Playbook(PAIR).send(*small("a", "b"), ask("a", "g"), ask("b", "h"), ask("a", "h", request=2, within=1)).skip()
    )
    detail = "this would be a deadlock: job 'b' holds h and waits for g; job 'a' holds g and waits for h"
    book.send(ask("b", "g", request=2, within=2)).expect(Refuse("b", 2, "deadlock", detail))
    book.send(PhaseYielded(2)).expect(like(Grant, job="a", request=2))


def test_a_cycle_of_three_is_refused_and_named() -> None:
    """E7"""
    book = Playbook(TRIO).send(*small("a", "b", "c"), ask("a", "g"), ask("b", "h"), ask("c", "i"))
    book.send(ask("a", "h", request=2, within=1), ask("b", "i", request=2, within=2)).skip()
    links = ["job 'c' holds i and waits for g", "job 'a' holds g and waits for h", "job 'b' holds h and waits for i"]
    detail = "this would be a deadlock: " + "; ".join(links)
    book.send(ask("c", "g", request=2, within=3)).expect(Refuse("c", 2, "deadlock", detail))


def test_a_wait_without_a_cycle_is_none() -> None:
    """E7: b waits for a, and a for c, who waits for nobody."""
    book = Playbook(TRIO).send(*small("a", "b", "c"), ask("a", "g"), ask("b", "h"), ask("c", "i")).skip()
    book.send(ask("b", "g", request=2, within=2), ask("a", "i", request=2, within=1)).expect()


def test_a_cycle_through_a_lease_granted_within_another_is_refused() -> None:
    """E7: a holds g and, within it, h. It waits for b's i, and b for a's h."""
    book = Playbook(TRIO).send(*small("a", "b"), ask("a", "g"), ask("a", "h", request=2, within=1), ask("b", "i"))
    book.send(ask("b", "h", request=2, within=3)).skip()
    book.send(ask("a", "i", request=3, within=1)).expect(like(Refuse, code="deadlock"))


# ---------------------------------------------------------------------------------------------- backfill


def reserved(**limits: int) -> Playbook:
    """x holds h, as it says, for 100 more; b reserves g and waits for h; a and c are resident on g."""
    groups = (Group("g", capacity_bytes=100, **limits), PAIR[1])  # type: ignore[arg-type]
    book = Playbook(groups).send(*small("a", "b", "c", "x"), ask("a"), PhaseYielded(1), ask("c"), PhaseYielded(2))
    return book.send(ask("x", "h", estimate=100), ask("b", "g", "h")).skip()


def with_estimate(book: Playbook, job: str, estimate: int, request: int = 2) -> Playbook:
    return book.send(PhaseRequested(job, request, job, ("g",), "short", estimate))


def test_a_resident_job_whose_phase_ends_in_time_is_let_in_before_a_reservation() -> None:
    """E10"""
    book = with_estimate(reserved(), "a", 100).expect(like(Grant, job="a", backfills=("b", 1)))
    book.at(100).send(PhaseYielded(3)).expect().send(PhaseYielded(4)).expect(like(Grant, job="b"))


def test_a_phase_that_would_not_end_in_time_is_not_let_in() -> None:
    """E10"""
    with_estimate(reserved(), "a", 101).expect()
    with_estimate(reserved().at(60), "a", 41).expect()


def test_a_job_that_is_not_resident_is_not_let_in() -> None:
    """E10"""
    with_estimate(reserved().send(*small("d")), "d", 1).expect()


def test_after_one_overrun_nobody_more_is_let_in() -> None:
    """E10"""
    book = with_estimate(reserved(), "a", 10).skip().at(11).send(PhaseYielded(4))
    with_estimate(book, "c", 1).expect()


def test_without_an_overrun_the_next_is_let_in() -> None:
    """E10"""
    book = with_estimate(reserved(), "a", 10).skip().at(10).send(PhaseYielded(4))
    with_estimate(book, "c", 1).expect(like(Grant, job="c", backfills=("b", 1)))


def test_an_overrun_that_ended_in_a_revocation_counts_too() -> None:
    """E10, E12"""
    book = with_estimate(reserved(lease_ttl_us=30), "a", 10).skip().at(30).skip().send(Parked(1, "0"))
    with_estimate(book, "c", 10).expect()


# ------------------------------------------------------------------------------------------ ends of a turn


def test_a_lease_that_is_not_renewed_ends_and_its_job_is_seen_off_before_the_next_grant() -> None:
    """E12: although both would fit, a may still compute."""
    book = Playbook([Group("g", capacity_bytes=100, lease_ttl_us=30)]).send(*small("a", "b"), ask("a"), ask("b"))
    book.expect(like(Grant, job="a")).at(29).expect().at(30)
    reason = "the lease of job 'a' on g was not renewed in time"
    book.expect(Revoke(1, ("g",), reason), like(Park, op=1, job="a"))
    book.send(PhaseYielded(1)).expect(like(Ignore)).send(Parked(1, "0")).expect(like(Grant, job="b"))


def test_a_heartbeat_keeps_a_lease() -> None:
    """E12"""
    book = Playbook([Group("g", lease_ttl_us=30)]).send(add("a"), ask("a")).expect(like(Grant))
    book.at(20).send(LeaseRenewed(1)).at(49).expect().at(50).expect(like(Revoke), like(Park))


def test_a_request_may_bring_a_shorter_time_to_live() -> None:
    """E12"""
    book = Playbook([Group("g", lease_ttl_us=30)]).send(add("a"), ask("a", ttl=10)).expect(like(Grant))
    book.at(10).expect(like(Revoke), like(Park))


def test_nobody_holds_longer_than_the_group_allows_whoever_renews() -> None:
    """E12"""
    book = Playbook([Group("g", lease_ttl_us=30, max_hold_us=50)]).send(add("a"), ask("a")).expect(like(Grant))
    book.at(25).send(LeaseRenewed(1)).at(45).send(LeaseRenewed(1)).expect().at(50)
    book.expect(Revoke(1, ("g",), "job 'a' held g longer than max_hold_us allows"), like(Park))


def test_a_wake_up_is_asked_for_only_where_something_may_change() -> None:
    """E21"""
    book = Playbook([Group("g", lease_ttl_us=30), PAIR[1]]).send(add("a"), ask("a", "h")).expect(like(Grant))
    book.send(add("b"), ask("b", "g")).expect(like(Grant), WakeAt(30)).send(PhaseYielded(2)).at(30)
    assert book.log[-1][1] == Woke()
    book.expect()
    assert book.engine.wake_at() is None


def test_a_phase_over_its_time_is_suspended_when_another_job_waits() -> None:
    """E13, E14: it resumes as the same lease with a new token, before those who came after it."""
    book = Playbook([BRISK]).send(*small("a", "b", "c"), ask("a"), ask("b"), ask("c")).expect(like(Grant, lease=1))
    book.at(10).expect(Suspend(1), like(Park, op=1, job="a")).send(Parked(1, "0"))
    book.expect(like(Grant, lease=2, job="b"), like(Restore, op=2, job="a")).send(Restored(2, "0")).expect()
    book.send(PhaseYielded(2)).expect(like(Grant, lease=1, client="a", request=1, tokens={"g": 5}, restored=True))


def test_a_phase_over_its_time_goes_on_while_nobody_else_waits() -> None:
    """E13: neither nobody, nor another client of the same job."""
    book = Playbook([BRISK]).send(*small("a", "b"), ask("a"), ask("a", client="a2")).expect(like(Grant)).at(50).expect()
    book.send(RequestCancelled("a2", 1), ask("b")).expect(like(Suspend, lease=1), like(Park, job="a"))


def test_only_a_backend_that_can_suspend_is_told_to() -> None:
    """E13"""
    book = Playbook([Group("g", capacity_bytes=100, max_phase_us=10)]).send(*small("a", "b"), ask("a"), ask("b"))
    book.expect(like(Grant)).at(100).expect()


def test_a_lease_of_several_groups_is_never_suspended() -> None:
    """E13"""
    book = Playbook([BRISK, PAIR[1]]).send(*small("a", "b"), ask("a", "g", "h"), ask("b")).expect(like(Grant))
    book.at(100).expect()


def test_a_lease_that_waits_for_another_group_is_never_suspended() -> None:
    """E13"""
    book = Playbook([BRISK, PAIR[1]]).send(*small("a", "b", "x"), ask("x", "h"), ask("a"), ask("b")).skip()
    book.send(ask("a", "h", request=2, within=2)).at(100).expect()


def test_a_lease_that_gave_back_all_but_one_group_is_suspended_in_time() -> None:
    """E13, E21"""
    book = Playbook([BRISK, PAIR[1]]).send(*small("a", "b"), ask("a", "g", "h"), PhaseYielded(1, ("h",)), ask("b"))
    book.skip().at(10).expect(like(Suspend, lease=1), like(Park, job="a"))


def test_a_suspended_lease_resumes_on_the_groups_that_it_still_held() -> None:
    """E14, E11: a gave h back; only g was suspended."""
    book = Playbook([BRISK, PAIR[1]]).send(*small("a", "b"), ask("a", "g", "h"), PhaseYielded(1, ("h",))).skip()
    book.at(10).send(ask("b")).expect(like(Suspend, lease=1), like(Park, op=1, job="a"))
    book.send(Parked(1, "0"), PhaseYielded(2), Restored(2, "0")).skip()
    assert set(book.engine.state.leases[1].tokens) == {"g"}


def test_the_clock_of_a_suspended_lease_stops() -> None:
    """E14, E12: it had run 10 of 25, was away for long, and holds for 15 more."""
    group = Group("g", capacity_bytes=100, max_phase_us=10, suspendable=True, lease_ttl_us=20, max_hold_us=25)
    book = Playbook([group]).send(*small("a", "b"), ask("a"), ask("b")).skip().at(10).send(Parked(1, "0")).skip()
    book.at(19).send(PhaseYielded(2)).at(1000).expect().send(Restored(2, "0")).expect(like(Grant, lease=1)).at(1014)
    book.expect().at(1015).expect(like(Revoke, lease=1), like(Park))


def test_a_suspended_lease_can_be_given_back() -> None:
    """E14, E11"""
    book = Playbook([BRISK]).send(*small("a", "b"), ask("a"), ask("b")).at(10).send(Parked(1, "0")).skip()
    book.send(PhaseYielded(1)).expect().send(PhaseYielded(2)).expect()
    assert book.engine.state.estimates.own["a"] == {"": [10]}


def test_a_suspended_request_can_be_cancelled_or_asked_again() -> None:
    """E14, E2, E19"""
    book = Playbook([BRISK]).send(*small("a", "b"), ask("a"), ask("b")).at(10).send(Parked(1, "0")).skip()
    book.send(ask("a")).expect().send(RequestCancelled("a", 1)).expect().send(PhaseYielded(2)).expect()
    assert not book.engine.state.leases


def test_a_stale_yield_does_not_touch_a_suspended_lease() -> None:
    """E11, E19: the lease never held h."""
    book = Playbook([BRISK, PAIR[1]]).send(*small("a", "b"), ask("a"), ask("b")).at(10).send(PhaseYielded(1, ("h",)))
    book.skip().send(Parked(1, "0"), PhaseYielded(2)).expect(like(Grant, job="b"), like(Restore, job="a"))


# ----------------------------------------------------------------------------------- jobs that come and go


def test_a_job_lost_while_it_holds_is_discarded_before_the_next_grant() -> None:
    """E17, E12"""
    book = Playbook([ROOMY]).send(*small("a", "b"), ask("a"), ask("b")).skip().send(JobLost("a", "exit 1"))
    book.expect(Revoke(1, ("g",), "job 'a' was lost: exit 1"), like(Discard, op=1, job="a"))
    book.send(Discarded(1, "0")).expect(like(Grant, job="b"))


def test_a_job_lost_while_it_waits_is_refused() -> None:
    """E17"""
    book = Playbook([ROOMY]).send(*small("a", "b"), ask("a"), ask("b")).skip()
    book.send(JobLost("b")).expect(Refuse("b", 1, "job_left", "job 'b' was lost")).send(PhaseYielded(1)).expect()


def test_a_job_lost_while_it_is_parked_out_is_discarded() -> None:
    """E17, fault 14: the late answer of its park faults nobody."""
    book = Playbook([ALONE]).send(add("a"), add("b"), ask("a"), ask("b"), PhaseYielded(1)).skip()
    book.send(JobLost("a")).expect(like(Discard, op=2, job="a")).send(Parked(1, "0")).expect(like(Ignore))
    book.send(Discarded(2, "0")).expect(like(Grant, job="b"))


def test_a_job_lost_while_it_is_restored_is_discarded_and_the_next_goes_on() -> None:
    """E17"""
    book = second_in(ALONE).send(add("c"), ask("a", request=2), ask("c"), PhaseYielded(2), Parked(2, "0")).skip()
    book.send(JobLost("a")).expect(like(Refuse, client="a", request=2), like(Discard, op=4, job="a"))
    book.send(Restored(3, "0")).expect(like(Ignore)).send(Discarded(4, "0")).expect(like(Grant, job="c"))


def test_a_job_lost_while_it_is_suspended_ends_with_its_lease() -> None:
    """E17, E14"""
    book = Playbook([BRISK]).send(*small("a", "b"), ask("a"), ask("b")).at(10).skip().send(JobLost("a"))
    book.expect(like(Refuse, client="a", code="job_left"), like(Discard, op=2, job="a"))
    book.send(Discarded(2, "0")).expect(like(Grant, job="b"))


def test_a_job_that_leaves_is_forgotten_parked_state_and_all() -> None:
    """E17"""
    book = second_in(ALONE).send(JobLeft("a")).expect(like(Discard, op=2, job="a")).send(Discarded(2, "0")).expect()
    assert list(book.engine.state.groups["g"].ledger.places) == ["b"]


def test_a_job_added_again_waits_until_its_old_state_is_gone() -> None:
    """E17, E5"""
    book = Playbook([ROOMY]).send(*small("a"), ask("a"), JobLost("a")).skip()
    book.send(*small("a"), ask("a", request=2)).expect()
    book.send(Discarded(1, "0")).expect(like(Grant, job="a", request=2, restored=False))


def test_one_job_of_a_name_is_registered() -> None:
    Playbook([ALONE]).send(add("a"), add("a")).expect(Ignore("job 'a' is registered already"))


# ------------------------------------------------------------------------------------------- failed moves


def test_a_failed_park_is_tried_again_then_its_job_alone_is_quarantined() -> None:
    """E15, E16: and the next is granted once the memory was seen free."""
    book = Playbook([ALONE]).send(add("a"), add("b"), ask("a"), ask("b"), ask("a", request=2), PhaseYielded(1)).skip()
    book.send(MoveFailed(1, "0", "no")).expect(like(Park, op=2, job="a")).send(MoveFailed(2, "0", "no"))
    reason = "parking on group 'g' failed 2 times: no"
    book.expect(
        Quarantine("a", reason),
        Refuse("a", 2, "quarantined", f"job 'a' was quarantined: {reason}"),
        like(Discard, op=3, job="a"),
    )
    book.send(ask("a", request=3)).expect(like(Refuse, request=3, code="quarantined"))
    book.send(Discarded(3, "0")).expect(like(Grant, job="b"))


def test_a_park_that_succeeds_in_the_end_leaves_no_mark() -> None:
    """E15"""
    book = Playbook([ALONE]).send(add("a"), add("b"), ask("a"), ask("b"), PhaseYielded(1), MoveFailed(1, "0")).skip()
    book.send(Parked(2, "0")).expect(like(Grant, job="b")).send(ask("a", request=2), PhaseYielded(2)).skip()
    book.send(MoveFailed(3, "0")).expect(like(Park, op=4, job="b"))


def test_a_job_fails_where_one_of_its_nodes_fails() -> None:
    """E15, R3: all nodes move again, together."""
    group = Group("g", nodes=("n", "m"))
    book = Playbook([group]).send(add("a"), add("b"), ask("a"), ask("b"), PhaseYielded(1)).skip()
    book.send(MoveFailed(1, "n")).expect().send(Parked(1, "m")).expect(like(Park, op=2, nodes=("n", "m")))


def test_a_failed_restore_never_becomes_a_grant() -> None:
    """E15, E16: its half-restored state is moved away, and the next in line goes on."""
    book = second_in(ALONE).send(add("c"), ask("a", request=2), ask("c"), PhaseYielded(2), Parked(2, "0")).skip()
    book.send(MoveFailed(3, "0")).expect(like(Restore, op=4, job="a")).send(MoveFailed(4, "0"))
    book.expect(like(Quarantine, job="a"), like(Refuse, client="a", code="quarantined"), like(Park, op=5, job="a"))
    book.send(Parked(5, "0")).expect(like(Grant, job="c"))


def test_a_quarantined_job_is_not_put_back_in_line_by_a_suspension() -> None:
    """E16, E13: a's park on h failed for good while another of its clients held g."""
    book = Playbook([BRISK, Group("h", retries=0)]).send(add("a", g=1), add("b", g=1), ask("a", "h"), ask("b", "h"))
    book.send(ask("a", "g", client="a2"), ask("b", "g", client="b2"), PhaseYielded(1), MoveFailed(1, "0")).skip().at(10)
    assert not [request for request in book.engine.state.requests.values() if request.job == "a"]


def test_a_readmitted_job_takes_turns_again() -> None:
    """E16"""
    group = Group("g", retries=0)
    book = second_in(group).send(ask("a", request=2), PhaseYielded(2), Parked(2, "0"), MoveFailed(3, "0")).skip()
    book.send(Parked(4, "0"), JobReadmitted("a"), ask("a", request=3)).expect(like(Restore, op=5, job="a"))
    book.send(Restored(5, "0")).expect(like(Grant, request=3))


def test_a_discard_is_tried_until_it_succeeds_after_growing_delays() -> None:
    """E16, E21"""
    book = Playbook([ALONE]).send(add("a"), add("b"), ask("a"), JobLost("a"), ask("b")).skip()
    tried, op = [0], 1
    for _ in range(8):
        book.send(MoveFailed(op, "0")).expect()
        due = book.engine.wake_at()
        assert due is not None
        op += 1
        book.at(due - 1).expect().at(due).expect(like(Discard, op=op, job="a"))
        tried.append(due)
    delays = [after - before for before, after in pairwise(tried)]
    assert [delay // 1_000_000 for delay in delays] == [2, 4, 8, 16, 32, 60, 60, 60]
    book.send(Discarded(op, "0")).expect(like(Grant, job="b"))


def test_one_jobs_stuck_state_does_not_hold_up_those_who_fit_beside_it() -> None:
    """E16"""
    book = Playbook([ROOMY]).send(add("a", g=60), add("b", g=40), ask("a"), PhaseYielded(1), JobLeft("a")).skip()
    book.send(MoveFailed(1, "0"), ask("b")).expect(like(Grant, job="b"))


def test_the_memory_of_a_failed_move_counts_until_it_was_seen_free() -> None:
    """R2"""
    book = Playbook([ROOMY]).send(add("a", g=60), add("b", g=50), ask("a"), PhaseYielded(1), JobLeft("a")).skip()
    book.send(MoveFailed(1, "0"), ask("b")).expect().at(2_000_000).expect(like(Discard, op=2))
    book.send(Discarded(2, "0")).expect(like(Grant, job="b"))


# ----------------------------------------------------------------------------------------------- operators


def test_a_group_with_a_lost_node_takes_no_new_turn_and_a_running_one_goes_on() -> None:
    """E18"""
    book = Playbook([ROOMY]).send(*small("a", "b"), ask("a"), ask("b")).skip().send(NodeLost("g", "0")).expect()
    book.send(LeaseRenewed(1)).expect().send(PhaseYielded(1)).expect()
    book.send(NodeReturned("g", "0")).expect(like(Grant, job="b"))


def test_moves_that_failed_while_a_node_was_lost_quarantine_nobody() -> None:
    """E18"""
    book = Playbook([ALONE]).send(add("a"), add("b"), ask("a"), ask("b"), PhaseYielded(1)).skip()
    book.send(MoveFailed(1, "0")).expect(like(Park, op=2)).send(NodeLost("g", "0"), MoveFailed(2, "0")).expect()
    book.send(NodeReturned("g", "0")).expect(like(Park, op=3, job="a")).send(MoveFailed(3, "0"))
    book.expect(like(Park, op=4, job="a")).send(Parked(4, "0")).expect(like(Grant, job="b"))


def test_a_group_opens_when_all_its_nodes_are_back() -> None:
    """E18"""
    book = Playbook([Group("g", nodes=("n", "m"))]).send(add("a"), NodeLost("g", "n"), NodeLost("g", "m"), ask("a"))
    book.send(NodeReturned("g", "n")).expect().send(NodeReturned("g", "m")).expect(like(Grant, job="a"))


def test_what_waits_for_a_lost_node_holds_up_no_other_group() -> None:
    """E18"""
    book = Playbook(PAIR).send(*small("a", "b", "c"), ask("a", "g"), ask("b", "g", "h"), NodeLost("h", "0")).skip()
    book.send(ask("c", "g"), PhaseYielded(1)).expect(like(Grant, job="c")).send(NodeReturned("h", "0")).expect()
    book.send(PhaseYielded(2)).expect(like(Grant, job="b"))


def test_a_reservation_goes_on_when_its_lost_node_is_back() -> None:
    """E18, E19: meanwhile g came free; x must be parked there, and nothing else will ever happen on g."""
    book = Playbook([ALONE, PAIR[1]]).send(add("x"), add("a"), ask("x", "g"), ask("a", "g", "h"), NodeLost("h", "0"))
    book.send(PhaseYielded(1)).skip().send(NodeReturned("h", "0")).expect(like(Park, job="x"))


def test_a_job_that_is_back_before_its_lost_node_waits_until_its_old_state_is_gone() -> None:
    """E17, E18, E5: nothing is discarded under a turn."""
    book = Playbook([ALONE, PAIR[1]]).send(add("a"), ask("a", "h", "g"), PhaseYielded(1), NodeLost("g", "0"))
    book.send(JobLost("a"), add("a"), Discarded(1, "0"), ask("a", "h", "g", request=2)).skip()
    book.send(NodeReturned("g", "0")).expect(like(Discard, op=2, group="g", job="a"))
    book.send(Discarded(2, "0")).expect(like(Grant, job="a", request=2))


def test_a_state_forced_out_by_an_operator_is_gone() -> None:
    """E18: a lost node's job is given up, and the group goes on when it is said to be back."""
    book = Playbook([ALONE]).send(add("a"), add("b"), ask("a"), PhaseYielded(1), NodeLost("g", "0"), ask("b")).skip()
    book.send(EvictionForced("g", "a")).expect().send(NodeReturned("g", "0")).expect(like(Grant, job="b"))
    book.send(ask("a", request=2), PhaseYielded(2), Parked(1, "0")).expect(like(Park, op=1), like(Grant, job="a"))


def test_a_holder_forced_out_loses_its_lease_on_that_group_alone() -> None:
    """E18, E11"""
    book = Playbook(PAIR).send(*small("a", "b"), ask("a", "g", "h"), ask("b")).skip().send(EvictionForced("g", "a"))
    book.expect(like(Revoke, lease=1, groups=("g",)), like(Grant, job="b"))
    book.send(PhaseYielded(1)).expect()


def test_a_move_under_way_is_forgotten_with_its_state() -> None:
    """E18"""
    book = Playbook([ALONE]).send(add("a"), add("b"), ask("a"), ask("b"), PhaseYielded(1)).skip()
    book.send(EvictionForced("g", "a")).expect(like(Grant, job="b")).send(MoveFailed(1, "0")).expect(like(Ignore))


# ------------------------------------------------------------------------------------------------ restarts


def test_after_a_restart_every_move_under_way_is_commanded_again() -> None:
    """J4: the same operation and token, for the nodes that have not answered."""
    book = Playbook([Group("g", nodes=("n", "m"))]).send(add("a"), add("b"), ask("a"), ask("b"), PhaseYielded(1))
    book.send(Parked(1, "n")).skip().crash().expect(like(Park, op=1, job="a", token=2, nodes=("m",)))
    book.send(Parked(1, "m")).expect(like(Grant, job="b", tokens={"g": 3}))


def test_after_a_restart_a_lease_that_nobody_claims_ends() -> None:
    """J5, E12"""
    book = Playbook([ROOMY], reattach_us=50).send(*small("a", "b"), ask("a"), ask("b")).skip().at(100).crash().at(149)
    book.expect().at(150).expect(like(Revoke, lease=1), like(Park, op=1)).send(Parked(1, "0"))
    book.expect(like(Grant, job="b"))


def test_after_a_restart_a_lease_is_claimed_by_asking_again() -> None:
    """J5, E2: with its tokens, and for as long as the group allows."""
    book = Playbook([ROOMY], reattach_us=50).send(*small("a"), ask("a")).skip().at(100).crash()
    book.send(ask("a")).expect(like(Grant, lease=1, tokens={"g": 1})).at(10**6).expect()


def test_after_a_restart_a_lease_is_claimed_by_a_heartbeat() -> None:
    """J5"""
    book = Playbook([ROOMY], reattach_us=50).send(*small("a"), ask("a")).skip().at(100).crash()
    book.send(LeaseRenewed(1)).at(10**6).expect()


def test_downtime_extends_deadlines() -> None:
    """J5"""
    group = Group("g", lease_ttl_us=30)
    book = Playbook([group]).send(add("a"), ask("a")).skip().at(20).crash().at(49).expect()
    book.at(50).expect(like(Revoke), like(Park))


def test_after_a_restart_a_waiter_keeps_its_place() -> None:
    """J2, E2: asked again, it is the same request."""
    book = Playbook([ROOMY]).send(*small("a", "b", "c"), ask("a"), ask("b"), ask("c")).skip().crash()
    book.send(ask("c"), ask("b"), PhaseYielded(1)).expect(like(Grant, job="b"))


def test_a_waiter_that_did_not_come_back_is_granted_and_then_loses_its_lease() -> None:
    """J5, E19"""
    book = Playbook([ROOMY], reattach_us=50).send(*small("a", "b"), ask("a"), ask("b")).skip().crash()
    book.send(PhaseYielded(1)).expect(like(Grant, job="b")).at(50).expect(like(Revoke, lease=2), like(Park))


def test_after_a_restart_a_suspended_lease_resumes() -> None:
    """J2, E14"""
    book = Playbook([BRISK]).send(*small("a", "b"), ask("a"), ask("b")).at(10).send(Parked(1, "0")).skip().crash()
    book.send(PhaseYielded(2), Restored(2, "0")).expect(like(Restore), like(Grant, lease=1, job="a"))


def test_after_a_restart_a_discard_waits_for_its_time() -> None:
    """J4, E16"""
    book = Playbook([ALONE]).send(add("a"), ask("a"), JobLost("a"), MoveFailed(1, "0")).skip().at(500).crash().expect()
    book.at(2_000_000).expect(like(Discard, op=2))


def test_a_log_is_applied_and_not_decided_again() -> None:
    """J3: the same records under another policy give the same leases and residents."""
    book = second_in(ALONE).send(add("c"), ask("a", request=2, estimate=9), ask("c", estimate=1), PhaseYielded(2))
    replayed = Engine([ALONE], ShortestPhaseFirst())
    for now, event, commands in book.log:
        replayed.apply(event, commands, now)
    selected = replayed.state.groups["g"].selected
    assert selected is not None
    assert selected.key == ("a", 2)
    assert replayed.snapshot()["groups"] != {}
    assert replayed.state.moves == book.engine.state.moves
    assert [type(command) for command in replayed.handle(Restarted(), book.now)] == [Park]


# --------------------------------------------------------------------------------------- options of policies


def test_a_window_takes_a_resident_job_first_but_passes_nobody_over_too_often() -> None:
    """P7: a, who must be restored, stands first; b and c are in memory and come back again and again."""
    book = Playbook([Group("g", capacity_bytes=100, prefetch=False)], Fifo(window=2))
    book.send(add("a", g=50), add("b", g=60), add("c", g=1), ask("c"), PhaseYielded(1), ask("a"), ask("b"))
    book.send(PhaseYielded(2), Parked(1, "0"), ask("a", request=2), ask("c", request=2)).skip()
    book.send(PhaseYielded(3)).expect(like(Grant, lease=4, job="c")).send(ask("b", request=2), PhaseYielded(4))
    book.expect(like(Grant, lease=5, job="b")).send(ask("c", request=3), PhaseYielded(5))
    book.expect(Select("g", "a", 2), like(Park, job="b"))


def lingering() -> Playbook:
    """Jobs a and b share g; a, who holds it, is usually back after 10, and a switch takes 500. At 1,200 b waits."""
    book = Playbook([ALONE], Fifo(linger_s=0.0005)).send(add("a"), add("b")).at(1).send(ask("a"), PhaseYielded(1))
    book.at(11).send(ask("a", request=2), ask("b"), PhaseYielded(2), Parked(1, "0")).at(20).send(ask("a", request=3))
    book.at(100).send(PhaseYielded(3)).at(600).send(Parked(2, "0")).at(1100).send(Restored(3, "0"))
    return book.send(ask("b", request=2)).at(1200).skip()


def test_a_group_is_kept_for_a_job_that_will_be_back_before_a_switch_would_pay() -> None:
    """P8: once for each head of the line."""
    book = lingering().send(PhaseYielded(4)).expect(Hold("g", "a", 1700))
    book.at(1210).send(ask("a", request=4)).expect(like(Grant, job="a", request=4))
    book.send(PhaseYielded(5)).expect(like(Park, job="a"))


def test_a_group_is_not_kept_longer_than_was_said() -> None:
    """P8, E21"""
    book = lingering().send(PhaseYielded(4)).expect(like(Hold)).at(1699).expect().at(1700)
    book.expect(like(Park, job="a"))


def test_a_group_is_not_kept_for_a_job_that_is_gone() -> None:
    """P8, E16"""
    book = lingering().send(PhaseYielded(4), JobLeft("a")).expect(like(Hold), like(Discard, op=4, job="a"))
    book.send(Discarded(4, "0")).expect(like(Restore, op=5, job="b"))


# ------------------------------------------------------------------------------- several groups, and one alone


def test_requests_for_several_groups_do_not_carry_each_other_past_one_that_came_first() -> None:
    """E9, P0: m and n take turns on g with idle groups of their own; c, who asked for g alone before n, is next."""
    book = Playbook(TRIO).send(*small("m", "n", "c"), ask("m", "g", "h"), ask("c", "g"), ask("n", "g", "i")).skip()
    book.send(PhaseYielded(1)).expect(like(Grant, job="c"))
    book.send(ask("m", "g", "h", request=2), PhaseYielded(2)).expect(like(Grant, job="n"))


def test_a_job_that_left_during_its_park_on_a_lost_node_is_dropped_when_the_node_is_back() -> None:
    """E17, E19: the park itself was answered by the loss of the job, which was not registered any more."""
    book = Playbook([ALONE]).send(add("a"), add("b"), ask("a"), ask("b"), PhaseYielded(1)).skip()
    book.send(NodeLost("g", "0"), JobLeft("a"), JobLost("a")).skip().send(NodeReturned("g", "0"))
    book.expect(like(Discard, job="a")).send(Discarded(2, "0")).expect(like(Grant, job="b"))


def test_a_context_waits_for_one_nested_request_at_a_time_whichever_of_its_leases_asks() -> None:
    """E8, E7: b holds g and, within it, h; two waits at once could close a cycle when one of them is granted."""
    book = Playbook([*TRIO, Group("j")]).send(*small("b", "z"), ask("z", "i", "j"), ask("b", "g"))
    book.send(ask("b", "h", request=2, within=2), ask("b", "i", request=3, within=3)).skip()
    book.send(ask("b", "j", request=4, within=2)).expect(like(Refuse, request=4, code="bad_request"))


def test_a_backfilled_turn_is_not_counted_as_passing_over_the_reservation() -> None:
    """P9, P7: it delays nobody."""
    groups = (ROOMY, PAIR[1])
    book = Playbook(groups, Fifo(window=4)).send(*small("a", "b", "x"), ask("a"), PhaseYielded(1))
    book.send(ask("x", "h", estimate=100), ask("b", "g", "h")).skip()
    with_estimate(book, "a", 10).expect(like(Grant, job="a", backfills=("b", 1)))
    assert book.engine.state.requests["b", 1].skips == 0


def test_a_job_that_left_leaves_no_note_of_its_size() -> None:
    """E17: names come and go for as long as a service runs."""
    book = Playbook([ROOMY]).send(add("a", g=1), ask("a"), PhaseYielded(1), JobLeft("a"), Discarded(1, "0")).skip()
    assert not book.engine.state.groups["g"].ledger._measured


def test_who_ranks_before_a_reservation_does_not_give_way_to_it() -> None:
    """E8, E9, E19: c reserved g, h; a holds g and reserves i, waiting for b's h; b, within h, is first on i."""

    def wants(job: str, number: int, *groups: str, left: int, within: int | None = None) -> PhaseRequested:
        return PhaseRequested(job, number, job, groups, remaining_us=left, within=within)

    book = Playbook(TRIO, LongestRemainingFirst()).send(*small("a", "b", "c"), wants("a", 1, "g", left=1))
    book.send(wants("c", 1, "g", "h", left=0), wants("b", 1, "h", left=2)).skip()
    book.send(wants("a", 2, "h", "i", left=1, within=1)).expect()
    book.send(wants("b", 2, "i", left=2, within=2)).expect(like(Grant, job="b", tokens={"i": 1}))
