"""A decision log as spans of time, and those as a Chrome trace that ui.perfetto.dev opens.

`spans` says who held, moved and waited on which group, and from when to when; the HTML report draws the same
spans. `chrome_trace` gives each group a process with a track of turns, as many tracks of moves as overlap,
and a counter of waiting requests. Pure: nothing is read or written here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from tsched.commands import Command, Discard, Grant, Ignore, Move, Park, Refuse, Restore, Revoke, Suspend
from tsched.events import (
    Discarded,
    Event,
    JobLeft,
    JobLost,
    MoveFailed,
    Parked,
    PhaseRequested,
    PhaseYielded,
    RequestCancelled,
    Restored,
)
from tsched.model import Group

MOVES = {Park: "park", Restore: "restore", Discard: "discard"}
STILL_OPEN = "not over when the log ends"


class Entry(Protocol):
    """What is read of a log's record."""

    @property
    def now(self) -> int: ...
    @property
    def event(self) -> Event: ...
    @property
    def commands(self) -> Sequence[Command]: ...


class Span(Struct, frozen=True):
    """Something that took time: a `turn`, a `wait`, or a move (`park`, `restore`, `discard`) on one node.

    `number` is the lease, the request or the operation; `note` says how it ended, where not as it should.
    """

    kind: str
    group: str
    job: str
    start_us: int
    end_us: int
    phase: str = ""
    node: str = ""
    number: int = 0
    note: str = ""


def spans(records: Iterable[Entry]) -> list[Span]:
    """Every span of a log, in order of their starts; what is open at the end ends with the last record."""
    reader = SpanReader()
    for record in records:
        reader.read(record)
    return reader.finish()


class SpanReader:
    """Follows a log, record by record; `done` has the spans that are over.

    Keys of `open`: ("turn", lease, group), ("wait", client, request, group), ("move", op, node).
    """

    def __init__(self) -> None:
        self.now = 0
        self.open: dict[tuple[object, ...], Span] = {}
        self.turns: dict[int, dict[str, None]] = {}
        self.waits: dict[tuple[str, int], tuple[str, ...]] = {}
        self.done: list[Span] = []

    def read(self, record: Entry) -> None:
        self.now = record.now
        if not any(isinstance(command, Ignore) for command in record.commands):
            self._event(record.event)
        for command in record.commands:
            self._command(command)

    def finish(self) -> list[Span]:
        for key in list(self.open):
            self._close(key, STILL_OPEN)
        self.done.sort(key=lambda span: (span.start_us, span.end_us))
        return self.done

    def _event(self, event: Event) -> None:
        match event:
            case PhaseRequested():
                self._wait(event)
            case PhaseYielded(lease, groups):
                self._turns_end(lease, groups, "")
            case RequestCancelled(client, request):
                self._waits_end((client, request), "cancelled")
            case Parked(op, node) | Restored(op, node) | Discarded(op, node):
                self._close(("move", op, node))
            case MoveFailed(op, node, reason):
                self._close(("move", op, node), f"failed: {reason}" if reason else "failed")
            case JobLeft(job) | JobLost(job):
                self._gone(job, "job left" if isinstance(event, JobLeft) else "job lost")
            case _:
                pass

    def _command(self, command: Command) -> None:
        match command:
            case Grant():
                self._granted(command)
            case Refuse(client, request, code):
                self._waits_end((client, request), f"refused: {code}")
            case Revoke(lease, groups, reason):
                self._turns_end(lease, groups, f"revoked: {reason}")
            case Suspend(lease):
                self._turns_end(lease, (), "suspended")
            case Park() | Restore() | Discard():
                self._moved(command)
            case _:
                pass

    def _wait(self, event: PhaseRequested) -> None:
        key = (event.client, event.request)
        if key not in self.waits:
            self.waits[key] = event.groups
            for group in event.groups:
                span = Span("wait", group, event.job, self.now, self.now, event.phase, "", event.request)
                self.open["wait", *key, group] = span

    def _granted(self, grant: Grant) -> None:
        self._waits_end((grant.client, grant.request), "")
        held = self.turns.setdefault(grant.lease, {})
        for group in grant.tokens:
            if group not in held:
                held[group] = None
                span = Span("turn", group, grant.job, self.now, self.now, grant.phase, "", grant.lease)
                self.open["turn", grant.lease, group] = span

    def _moved(self, move: Move) -> None:
        kind = MOVES[type(move)]
        for node in move.nodes:
            span = Span(kind, move.group, move.job, self.now, self.now, "", node, move.op)
            self.open.setdefault(("move", move.op, node), span)

    def _gone(self, job: str, note: str) -> None:
        """Whatever the engine does about it, a job that is gone neither computes nor waits."""
        gone = [key for key, span in self.open.items() if span.job == job and key[0] != "move"]
        for key in gone:
            self._close(key, note)

    def _waits_end(self, key: tuple[str, int], note: str) -> None:
        for group in self.waits.pop(key, ()):
            self._close(("wait", *key, group), note)

    def _turns_end(self, lease: int, groups: Sequence[str], note: str) -> None:
        held = self.turns.get(lease, {})
        for group in list(groups or held):
            if group in held:
                del held[group]
                self._close(("turn", lease, group), note)
        if not held:
            self.turns.pop(lease, None)

    def _close(self, key: tuple[object, ...], note: str = "") -> None:
        span = self.open.pop(key, None)
        if span is not None:
            self.done.append(replace(span, end_us=self.now, note=note))


# ------------------------------------------------------------------------------------------------ Chrome trace


def chrome_trace(groups: Sequence[Group], records: Iterable[Entry]) -> dict[str, Any]:
    """The log in Chrome's trace event format, JSON-able; times stay integer microseconds."""
    by_group: dict[str, list[Span]] = {group.name: [] for group in groups}
    for span in spans(records):
        by_group.setdefault(span.group, []).append(span)
    events: list[dict[str, Any]] = []
    for pid, (name, found) in enumerate(by_group.items(), 1):
        events += _process(pid, name, found)
    return {"displayTimeUnit": "ms", "traceEvents": events}


def _process(pid: int, group: str, found: list[Span]) -> list[dict[str, Any]]:
    turns = [span for span in found if span.kind == "turn"]
    moves = [span for span in found if span.kind not in ("turn", "wait")]
    events = [_named("process_name", pid, 0, group), _order("process_sort_index", pid, 0, pid)]
    tracks = [("turns", turns), *((f"moves {n}" if n > 1 else "moves", lane) for n, lane in enumerate(lanes(moves), 1))]
    for tid, (title, track) in enumerate(tracks, 1):
        events += [_named("thread_name", pid, tid, title), _order("thread_sort_index", pid, tid, tid)]
        events += [_slice(pid, tid, span) for span in track]
    return events + _waiting(pid, [span for span in found if span.kind == "wait"])


def lanes(found: Sequence[Span]) -> list[list[Span]]:
    """The spans, in order of start, spread over as few lanes as hold them without overlap."""
    rows: list[list[Span]] = []
    for span in found:
        for row in rows:
            if row[-1].end_us <= span.start_us:
                row.append(span)
                break
        else:
            rows.append([span])
    return rows


def _slice(pid: int, tid: int, span: Span) -> dict[str, Any]:
    turn = span.kind == "turn"
    name = f"{span.job}: {span.phase}" if turn and span.phase else span.job if turn else f"{span.kind} {span.job}"
    details = {"job": span.job, "phase": span.phase, "node": span.node, "note": span.note}
    args: dict[str, Any] = {key: value for key, value in details.items() if value}
    args["lease" if turn else "op"] = span.number
    timing = {"ts": span.start_us, "dur": span.end_us - span.start_us}
    return {"ph": "X", "pid": pid, "tid": tid, "cat": span.kind, "name": name, **timing, "args": args}


def _waiting(pid: int, waits: list[Span]) -> list[dict[str, Any]]:
    common = {"ph": "C", "pid": pid, "name": "waiting"}
    return [{**common, "ts": when, "args": {"requests": level}} for when, level in waiting_steps(waits)]


def waiting_steps(waits: Sequence[Span]) -> list[tuple[int, int]]:
    """(time, how many wait from then on), in order of time."""
    change: dict[int, int] = {}
    for span in waits:
        change[span.start_us] = change.get(span.start_us, 0) + 1
        change[span.end_us] = change.get(span.end_us, 0) - 1
    times = sorted(change)
    return list(zip(times, accumulate(change[when] for when in times), strict=True))


def _named(what: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": pid, "tid": tid, "name": what, "args": {"name": name}}


def _order(what: str, pid: int, tid: int, index: int) -> dict[str, Any]:
    return {"ph": "M", "pid": pid, "tid": tid, "name": what, "args": {"sort_index": index}}
