"""A recorded run as turns, and those as programs that repeat it: what all importers share.

A turn is one use of some groups by one client: asked for, granted, yielded. `replay` strings each client's turns
together: what passed between two of its own events is a run of that length, unless it was a wait, which is left to
the simulator. A client that did something while it waited for a grant cannot be one program: its turns on different
groups then become independent contexts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tsched.estimates import median
from tsched.model import Job
from tsched.sim.durations import Fixed
from tsched.sim.program import Acquire, Context, JobProgram, Run, Step, Yield


class Turn(NamedTuple):
    """One use of `groups`, in microseconds since any instant; `yields` says when which of them were given back."""

    job: str
    groups: tuple[str, ...]
    asked_us: int
    granted_us: int
    yields: tuple[tuple[int, tuple[str, ...]], ...]
    phase: str = ""
    client: str = ""
    estimate_us: int | None = None

    @property
    def yielded_us(self) -> int:
        """When the last group was given back."""
        return self.yields[-1][0]


class Mark(NamedTuple):
    """One event of a client: what it was, when, and on which groups."""

    when_us: int
    what: str
    groups: tuple[str, ...]
    turn: Turn

    def __str__(self) -> str:
        return f"{self.what} {'+'.join(self.groups)}"


class Replay(NamedTuple):
    """A job's program, and for each step of each context when it had ended in the recording."""

    program: JobProgram
    ends_us: tuple[tuple[int, ...], ...]


Track = list[Mark]


def replay(turns: Sequence[Turn], jobs: Iterable[Job] = ()) -> tuple[Replay, ...]:
    """One program for each job, by order of first request; the earliest request of all is time 0.

    Args:
        turns: at least one.
        jobs: what is known of the jobs; of others the name alone is.
    """
    known = {job.name: job for job in jobs}
    start = min(turn.asked_us for turn in turns)
    names = list(dict.fromkeys(turn.job for turn in sorted(turns, key=lambda turn: (turn.asked_us, turn.job))))
    tracks = {name: _by_client([turn for turn in turns if turn.job == name]) for name in names}
    linear = {name: all(map(_is_linear, tracks[name].values())) for name in names}
    if not _one_order(track for name in names if linear[name] for track in tracks[name].values()):
        linear = dict.fromkeys(names, False)
    for name in names:
        if not linear[name]:
            tracks[name] = _by_groups([turn for turn in turns if turn.job == name])
    return tuple(_program(known.get(name, Job(name)), tracks[name], start) for name in names)


def switch_costs(turns: Iterable[Turn]) -> dict[str, int]:
    """For each group the median of its `hand_overs`."""
    return {group: median(passed) for group, passed in hand_overs(turns).items()}


def hand_overs(turns: Iterable[Turn]) -> dict[str, list[int]]:
    """For each group what passed between the later of yield and request, and another job's next grant."""
    passed: dict[str, list[int]] = {}
    last: dict[str, tuple[str, int]] = {}
    for turn in sorted(turns, key=lambda turn: (turn.granted_us, turn.yielded_us)):
        for group in turn.groups:
            job, yielded = last.get(group, (turn.job, 0))
            if job != turn.job:
                passed.setdefault(group, []).append(max(0, turn.granted_us - max(yielded, turn.asked_us)))
        last.update((group, (turn.job, when)) for when, groups in turn.yields for group in groups)
    return passed


def makespan_us(turns: Iterable[Turn]) -> int:
    """From the first request to the last yield."""
    turns = list(turns)
    return max(turn.yielded_us for turn in turns) - min(turn.asked_us for turn in turns)


def _by_client(turns: list[Turn]) -> dict[str, Track]:
    clients = list(dict.fromkeys(turn.client for turn in turns))
    names = {client: str(index) if len(clients) > 1 else "" for index, client in enumerate(clients)}
    return {names[client]: _track([turn for turn in turns if turn.client == client]) for client in clients}


def _by_groups(turns: list[Turn]) -> dict[str, Track]:
    """One track for each set of groups; turns that overlap even so are kept one after another."""
    sets = sorted({"+".join(turn.groups) for turn in turns})
    tracks = {}
    for name in sets:
        mine = sorted((turn for turn in turns if "+".join(turn.groups) == name), key=lambda turn: turn.granted_us)
        free = mine[0].asked_us
        for index, turn in enumerate(mine):
            asked = max(turn.asked_us, free)
            granted = max(turn.granted_us, asked)
            yields = tuple((max(when, granted), groups) for when, groups in turn.yields)
            mine[index] = turn._replace(asked_us=asked, granted_us=granted, yields=yields)
            free = mine[index].yielded_us
        tracks[name] = _track(mine)
    return tracks


def _track(turns: list[Turn]) -> Track:
    """The turns' events by time; of one turn at one instant they keep their order, else a grant comes first."""
    marks: list[tuple[int, int, int, Mark]] = []
    for turn in turns:
        own = [Mark(turn.asked_us, "ask", turn.groups, turn), Mark(turn.granted_us, "grant", turn.groups, turn)]
        own += [Mark(when, "yield", groups, turn) for when, groups in turn.yields]
        at = -1
        for place, mark in enumerate(own):
            rank = ("grant", "yield", "ask").index(mark.what)
            rank = at if place and own[place - 1].when_us == mark.when_us and at > rank else rank
            marks.append((mark.when_us, rank, len(marks), mark))
            at = rank
    return [mark for _, _, _, mark in sorted(marks, key=lambda entry: entry[:3])]


def _is_linear(track: Track) -> bool:
    """Whether nothing happens between a request and its grant."""
    waiting: Turn | None = None
    for mark in track:
        if waiting is not None and (mark.what != "grant" or mark.turn is not waiting):
            return False
        waiting = mark.turn if mark.what == "ask" else None
    return True


def _one_order(tracks: Iterable[Track]) -> bool:
    """Whether groups that are asked for while others are held always come in one order, so that nobody can deadlock."""
    after: dict[str, set[str]] = {}
    for track in tracks:
        held: list[str] = []
        for mark in track:
            if mark.what == "ask":
                for group in held:
                    after.setdefault(group, set()).update(mark.groups)
                held += mark.groups
            elif mark.what == "yield":
                held = [group for group in held if group not in mark.groups]
    while after:
        free = [group for group, then in after.items() if not then & after.keys()]
        if not free:
            return False
        for group in free:
            del after[group]
    return True


def _program(job: Job, tracks: dict[str, Track], start: int) -> Replay:
    arrival = min(track[0].when_us for track in tracks.values())
    timed = {name: _steps(track, arrival) for name, track in tracks.items()}
    contexts = tuple(Context(tuple(step for step, _ in steps), 1, name) for name, steps in timed.items())
    return Replay(
        JobProgram(job, contexts, arrival - start), tuple(tuple(end for _, end in steps) for steps in timed.values())
    )


def _steps(track: Track, start: int) -> list[tuple[Step, int]]:
    steps: list[tuple[Step, int]] = []
    held: list[str] = []
    before, when = "start", start
    for mark in track:
        if mark.what != "grant" and mark.when_us > when:
            steps.append((Run(Fixed(mark.when_us - when), f"{before} -> {mark}"), mark.when_us))
        if mark.what == "ask":
            phase = mark.turn.phase or "+".join(mark.groups)
            steps.append((Acquire(mark.groups, phase, mark.turn.estimate_us, bool(held)), mark.turn.granted_us))
            held += mark.groups
        elif mark.what == "yield":
            steps.append((Yield(mark.groups), mark.when_us))
            held = [group for group in held if group not in mark.groups]
        before, when = str(mark), mark.when_us
    return steps
