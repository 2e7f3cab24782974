"""Spans of a log, and the Chrome trace that they become."""

from __future__ import annotations

import json

from tsched.commands import Command, Discard, Grant, Ignore, Park, Refuse, Restore, Revoke, Suspend
from tsched.events import (
    Discarded,
    Event,
    JobAdded,
    JobLeft,
    JobLost,
    MoveFailed,
    Parked,
    PhaseRequested,
    PhaseYielded,
    RequestCancelled,
    Restored,
    Woke,
)
from tsched.journal.record import Record
from tsched.model import Group, Job
from tsched.perfetto import STILL_OPEN, Span, chrome_trace, lanes, spans, waiting_steps

GROUPS = [Group("train", nodes=("n0", "n1")), Group("idle")]


def log(*entries: tuple[int, Event, list[Command]]) -> list[Record]:
    return [Record(seq, now, event, tuple(commands)) for seq, (now, event, commands) in enumerate(entries)]


def ask(job: str, number: int = 1, *groups: str) -> PhaseRequested:
    return PhaseRequested(job, number, job, groups or ("train",), "step")


def grant(lease: int, job: str, number: int = 1, **tokens: int) -> Grant:
    return Grant(lease, job, number, job, tokens or {"train": lease}, "step")


def shape(records: list[Record]) -> list[tuple[str, str, str, int, int, str]]:
    return [(s.kind, s.group, s.job, s.start_us, s.end_us, s.note) for s in spans(records)]


def test_a_turn_runs_from_grant_to_yield_and_a_wait_from_request_to_grant() -> None:
    records = log(
        (0, JobAdded(Job("a")), []),
        (5, ask("a"), [grant(1, "a")]),
        (7, ask("b"), []),
        (20, PhaseYielded(1), [grant(2, "b")]),
        (30, PhaseYielded(2), []),
    )
    assert shape(records) == [
        ("wait", "train", "a", 5, 5, ""),
        ("turn", "train", "a", 5, 20, ""),
        ("wait", "train", "b", 7, 20, ""),
        ("turn", "train", "b", 20, 30, ""),
    ]


def test_each_node_of_a_move_has_a_span_and_a_failure_is_noted() -> None:
    records = log(
        (0, Woke(), [Park(1, "train", "a", 1, ("n0", "n1"), 100), Restore(2, "train", "b", 2, ("n0",), 100)]),
        (4, Parked(1, "n0"), []),
        (6, MoveFailed(1, "n1", "hung"), []),
        (9, Restored(2, "n0"), [Discard(3, "train", "a", 3, ("n1",), 100)]),
        (12, Discarded(3, "n1"), []),
    )
    assert shape(records) == [
        ("park", "train", "a", 0, 4, ""),
        ("park", "train", "a", 0, 6, "failed: hung"),
        ("restore", "train", "b", 0, 9, ""),
        ("discard", "train", "a", 9, 12, ""),
    ]


def test_a_partial_yield_keeps_the_other_group() -> None:
    records = log(
        (0, ask("a", 1, "train", "idle"), [grant(1, "a", train=1, idle=1)]),
        (3, PhaseYielded(1, ("train",)), []),
        (8, PhaseYielded(1), []),
    )
    turns = [each for each in shape(records) if each[0] == "turn"]
    assert turns == [("turn", "train", "a", 0, 3, ""), ("turn", "idle", "a", 0, 8, "")]


def test_suspended_turns_continue_as_turns_of_their_own_and_revoked_ones_say_why() -> None:
    records = log(
        (0, ask("a"), [grant(1, "a", train=1)]),
        (5, Woke(), [Suspend(1)]),
        (9, Woke(), [grant(1, "a", train=2)]),
        (12, Woke(), [Revoke(1, ("train",), "expired")]),
    )
    turns = [each[3:] for each in shape(records) if each[0] == "turn"]
    assert turns == [(0, 5, "suspended"), (9, 12, "revoked: expired")]


def test_a_grant_that_is_repeated_for_a_client_that_re_attached_is_one_turn() -> None:
    records = log((0, ask("a"), [grant(1, "a")]), (5, ask("a"), [grant(1, "a")]), (9, PhaseYielded(1), []))
    assert [each[3:5] for each in shape(records) if each[0] == "turn"] == [(0, 9)]


def test_an_ignored_event_ends_nothing() -> None:
    records = log((0, ask("a"), [grant(1, "a")]), (5, PhaseYielded(1), [Ignore("stale")]), (9, PhaseYielded(1), []))
    assert [each[3:5] for each in shape(records) if each[0] == "turn"] == [(0, 9)]


def test_waits_end_with_a_cancel_a_refusal_or_the_job() -> None:
    records = log(
        (0, ask("a"), []),
        (0, ask("b"), []),
        (0, ask("c"), []),
        (0, ask("d"), []),
        (1, RequestCancelled("a", 1), []),
        (2, Woke(), [Refuse("b", 1, "never_fits", "too big")]),
        (3, JobLost("c"), []),
        (4, JobLeft("d"), []),
    )
    ends = [("a", 1, "cancelled"), ("b", 2, "refused: never_fits"), ("c", 3, "job lost"), ("d", 4, "job left")]
    assert [(job, end, note) for _, _, job, _, end, note in shape(records)] == ends


def test_what_is_open_ends_with_the_log() -> None:
    records = log((0, ask("a"), [grant(1, "a")]), (7, Woke(), []))
    assert shape(records)[-1] == ("turn", "train", "a", 0, 7, STILL_OPEN)


def test_overlapping_spans_take_lanes_of_their_own() -> None:
    found = [Span("park", "g", "a", start, end) for start, end in [(0, 5), (1, 3), (3, 9), (5, 6)]]
    assert [[(s.start_us, s.end_us) for s in lane] for lane in lanes(found)] == [[(0, 5), (5, 6)], [(1, 3), (3, 9)]]


def test_the_number_waiting_steps_up_and_down() -> None:
    found = [Span("wait", "g", "a", start, end) for start, end in [(0, 5), (2, 5), (6, 6)]]
    assert waiting_steps(found) == [(0, 1), (2, 2), (5, 0), (6, 0)]


def test_a_chrome_trace_names_a_process_a_group_and_keeps_slices_of_a_track_apart() -> None:
    records = log(
        (0, ask("a"), [grant(1, "a"), Restore(7, "train", "b", 2, ("n0", "n1"), 100)]),
        (4, Restored(7, "n0"), []),
        (5, Restored(7, "n1"), []),
        (9, PhaseYielded(1), []),
    )
    trace = json.loads(json.dumps(chrome_trace(GROUPS, records)))
    events = trace["traceEvents"]
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert names == {1: "train", 2: "idle"}
    slices = [event for event in events if event["ph"] == "X"]
    assert [(s["name"], s["ts"], s["dur"]) for s in slices] == [
        ("a: step", 0, 9),
        ("restore b", 0, 4),
        ("restore b", 0, 5),
    ]
    assert len({s["tid"] for s in slices}) == 3
    assert [e["args"]["requests"] for e in events if e["ph"] == "C"] == [0]
