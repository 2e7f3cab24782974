"""A snapshot and back: the same state, and the same answers from there on (J2)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tsched.commands import Command
from tsched.engine import Engine
from tsched.errors import JournalError
from tsched.events import (
    Discarded,
    Event,
    EvictionForced,
    JobAdded,
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
from tsched.policies.round_robin import RoundRobin
from tsched.policies.shortest_phase_first import ShortestPhaseFirst
from tsched.residency import Standing

GROUPS = (
    Group("g", nodes=("n", "m"), max_hold_us=700),
    Group("h", capacity_bytes=100, lease_ttl_us=300),
    Group("i", capacity_bytes=100, max_phase_us=100, suspendable=True, retries=0),
)
NAMES = tuple(group.name for group in GROUPS)
WANTED = (("g",), ("h",), ("i",), ("h", "i"), ("g", "h"), ("i", "h", "g"))
POLICIES: list[Callable[[], Policy]] = [
    Fifo,
    ShortestPhaseFirst,
    FairShare,
    LeastRecentlyServed,
    RoundRobin,
    lambda: FairShare(window=4, linger_s=0.001),
]
Step = tuple[str, int, int]

KINDS = (
    *("ask",) * 6,
    *("answer",) * 6,
    *("yield",) * 4,
    *("nested", "cancel", "renew", "fail", "add", "resize", "lose", "readmit", "evict", "node", "wake", "part"),
)
steps = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 40), st.integers(0, 200)), max_size=40)


_ANSWERS: dict[Standing, type[Parked] | type[Restored] | type[Discarded]] = {
    Standing.PARKING: Parked,
    Standing.RESTORING: Restored,
    Standing.DISCARDING: Discarded,
}


def happening(engine: Engine, step: Step, number: int) -> Event:
    """What this step means to an engine in this state; the same for two engines that are alike."""
    kind, which, _ = step
    state = engine.state
    job, name = "abcd"[which % 4], NAMES[which % 3]
    lease = sorted(state.leases)[which % len(state.leases)] if state.leases else which
    waiting = sorted(state.requests)
    moves = sorted(state.moves)
    match kind:
        case "ask":
            return PhaseRequested("c", number, job, WANTED[which % 6], "", which * 10 if which % 2 else None)
        case "nested" if state.leases:
            return PhaseRequested("c", number, state.leases[lease].job, WANTED[which % 6], within=lease)
        case "answer" | "fail" if moves:
            op = moves[which % len(moves)]
            at, who = state.moves[op]
            place = state.groups[at].ledger.places[who]
            node = place.pending[which % len(place.pending)]
            if kind == "fail":
                return MoveFailed(op, node)
            return _ANSWERS[place.standing](op, node)
        case "yield":
            return PhaseYielded(lease)
        case "part" if state.leases:
            return PhaseYielded(lease, tuple(state.leases[lease].tokens)[:1])
        case "cancel" if waiting:
            return RequestCancelled(*waiting[which % len(waiting)])
        case "renew":
            return LeaseRenewed(lease)
        case "resize":
            return JobUpdated(Job(job, state_bytes={"h": which, "i": which}))
        case "lose":
            return JobLost(job)
        case "readmit":
            return JobReadmitted(job)
        case "evict":
            return EvictionForced(name, job)
        case "node":
            return (
                NodeReturned(name, GROUPS[which % 3].nodes[0])
                if which % 2
                else NodeLost(name, GROUPS[which % 3].nodes[0])
            )
        case "wake":
            return Woke()
        case _:
            return JobAdded(Job(job, "xy"[which % 2], 1 + which % 3, {"h": which % 60, "i": 40}, {"h": 10}))


def follow(engine: Engine, script: list[Step], now: int, number: int = 0) -> list[tuple[Event, list[Command]]]:
    log: list[tuple[Event, list[Command]]] = []
    for step in script:
        number += 1
        now += step[2]
        wake = engine.wake_at()
        if wake is not None and wake <= now:
            log.append((Woke(), engine.handle(Woke(), now)))
        event = happening(engine, step, number)
        log.append((event, engine.handle(event, now)))
    return log


def started(make: Callable[[], Policy]) -> Engine:
    engine = Engine(GROUPS, make(), reattach_us=250)
    for job in "abcd":
        engine.handle(JobAdded(Job(job, state_bytes={"h": 40, "i": 30}, turn_bytes={"h": 10})), 0)
    return engine


def plain(engine: Engine) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(json.dumps(engine.snapshot()))
    return data


@pytest.mark.parametrize("make", POLICIES, ids=lambda make: getattr(make, "name", "options"))
@settings(max_examples=60)
@given(before=steps, after=steps)
def test_an_engine_that_was_loaded_answers_as_the_one_that_was_taken(
    make: Callable[[], Policy], before: list[Step], after: list[Step]
) -> None:
    engine = started(make)
    follow(engine, before, 1)
    data = plain(engine)
    loaded = Engine.restore(json.loads(json.dumps(data)), GROUPS, make(), reattach_us=250)
    assert plain(loaded) == data
    now = engine.state.now
    assert loaded.handle(Restarted(), now) == engine.handle(Restarted(), now)
    assert follow(loaded, after, now, 100) == follow(engine, after, now, 100)
    assert plain(loaded) == plain(engine)


def test_taking_a_snapshot_changes_nothing_and_shares_nothing() -> None:
    engine = started(Fifo)
    engine.handle(PhaseRequested("c", 1, "a", ("h",)), 5)
    first = engine.snapshot()
    engine.handle(PhaseYielded(1), 9)
    assert first["leases"]
    assert json.dumps(first) != json.dumps(engine.snapshot())


def test_another_policy_takes_the_line_over_and_ranks_it_anew() -> None:
    engine = started(FairShare)
    for number, (job, estimate) in enumerate((("a", 9), ("b", 500), ("c", 5)), start=1):
        engine.handle(PhaseRequested("c", number, job, ("h",), "", estimate), 5)
    loaded = Engine.restore(plain(engine), GROUPS, ShortestPhaseFirst())
    assert [request.job for request in loaded.state.groups["h"].queue.ordered()] == ["c", "b"]
    assert loaded.policy.memory == {}


def test_a_group_that_was_added_since_is_empty() -> None:
    engine = started(Fifo)
    more = (*GROUPS, Group("new"))
    loaded = Engine.restore(plain(engine), more, Fifo())
    assert len(loaded.state.groups["new"].queue) == 0


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"groups": {"gone": None}}, "not one of version 1"),
        ({"now": "late"}, "not one of version 1: Expected `int`, got `str` - at `\\$.now`"),
        ({"colour": 1}, "unknown field `colour`"),
    ],
)
def test_what_is_no_snapshot_is_refused(change: dict[str, Any], text: str) -> None:
    with pytest.raises(JournalError, match=text):
        Engine.restore(plain(started(Fifo)) | change, GROUPS, Fifo())


def test_a_snapshot_of_a_group_that_is_not_configured_is_refused() -> None:
    with pytest.raises(JournalError, match="the log knows group 'i', which is not configured"):
        Engine.restore(plain(started(Fifo)), GROUPS[:2], Fifo())


def test_a_snapshot_of_a_newer_version_is_refused() -> None:
    """J7"""
    with pytest.raises(JournalError, match="version"):
        Engine.restore(plain(started(Fifo)) | {"version": 2}, GROUPS, Fifo())


def test_a_move_under_way_is_known_again_before_anything_is_asked_after() -> None:
    """J2, J3: the tail of the log may hold its answer."""
    engine = Engine([Group("g")], Fifo())
    for event in (JobAdded(Job("a")), JobAdded(Job("b")), ask("a"), ask("b"), PhaseYielded(1)):
        engine.handle(event, 1)
    again = Engine.restore(plain(engine), [Group("g")], Fifo())
    assert again.state.moves == engine.state.moves != {}
    assert again.handle(Parked(1, "0"), 2) == engine.handle(Parked(1, "0"), 2)


def ask(job: str) -> PhaseRequested:
    return PhaseRequested(job, 1, job, ("g",))
