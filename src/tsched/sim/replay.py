"""Our own decision logs, as workloads: what if last week had been scheduled otherwise?

Every client's turns become a program, what its moves took becomes the cost model. Under the policy that wrote the log
the exact replay decides as the log did. Time in which a turn was suspended is left out: the policy decides anew
whether to suspend.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import structs

from tsched.commands import Discard, Grant, Park, Refuse, Restore, Revoke, Suspend
from tsched.costs import FixedTable
from tsched.errors import Invalid
from tsched.estimates import median
from tsched.events import (
    Discarded,
    JobAdded,
    JobLeft,
    JobLost,
    JobUpdated,
    MoveFailed,
    Parked,
    PhaseRequested,
    PhaseYielded,
    RequestCancelled,
    Restored,
)
from tsched.journal import Header, Record, read_log
from tsched.model import Job
from tsched.sim.durations import Fixed
from tsched.sim.program import JobProgram, Run
from tsched.sim.recorded_costs import RecordedCosts
from tsched.sim.recording import Replay, Turn, makespan_us, replay
from tsched.sim.workload import Workload

Key = tuple[str, int]


def read_replay(path: str | Path) -> Workload:
    """The log at `path` as an exact replay; raises `Invalid`, in one line, for whatever is wrong with it."""
    header, records = read_log(path)
    return workload(header, records, str(path))


def workload(header: Header, records: Sequence[Record], source: str) -> Workload:
    """What the jobs of this log did, as programs."""
    jobs = _jobs(records)
    reader = _Reader()
    found = reader.read(records)
    if not found:
        raise Invalid(f"{source}: no turn was granted in this log, it must have at least one")
    try:
        return Workload(
            header.meta.get("workload", Path(source).stem),
            header.groups,
            tuple(_stays(each, reader.left_us.get(each.program.job.name, 0)) for each in replay(found, jobs.values())),
            _costs(records),
            recorded_makespan_us=makespan_us(found),
            meta={**header.meta, "policy": header.policy},
        )
    except Invalid as error:
        raise Invalid(f"{source}: {error}") from None


def turns(records: Sequence[Record]) -> list[Turn]:
    """Every turn of the log; one that was not over when it ended is cut off there."""
    return _Reader().read(records)


def _stays(each: Replay, left_us: int) -> JobProgram:
    """The program, with the job staying after its last yield for as long as it did."""
    program = each.program
    last = max(range(len(program.contexts)), key=lambda index: each.ends_us[index][-1])
    stays = left_us - each.ends_us[last][-1]
    if stays <= 0:
        return program
    contexts = list(program.contexts)
    contexts[last] = structs.replace(contexts[last], steps=(*contexts[last].steps, Run(Fixed(stays), "end")))
    return structs.replace(program, contexts=tuple(contexts))


class _Open:
    """A turn that is not over: when it was asked for and granted, in its client's own time, and what it still holds."""

    __slots__ = ("asked_us", "event", "granted_us", "held", "yields")

    def __init__(self, event: PhaseRequested, asked_us: int) -> None:
        self.event = event
        self.asked_us = asked_us
        self.granted_us: int | None = None
        self.held = list(event.groups)
        self.yields: list[tuple[int, tuple[str, ...]]] = []


class _Reader:
    """Puts turns together. A client's own time stands still while its turn is suspended."""

    def __init__(self) -> None:
        self._seen: set[Key] = set()
        self._asked: dict[Key, _Open] = {}
        self._leases: dict[int, _Open] = {}
        self._paused: dict[str, int] = {}
        self._stopped: dict[int, int] = {}
        self._found: list[Turn] = []
        self._last: dict[str, str] = {}
        self.left_us: dict[str, int] = {}

    def read(self, records: Sequence[Record]) -> list[Turn]:
        """All turns; then `left_us` says when each job left, in the time of its last client."""
        for record in records:
            self._take(record)
        for lease in list(self._leases):
            self._yield(lease, (), records[-1].now)
        return sorted(self._found, key=lambda turn: (turn.asked_us, turn.job, turn.client, turn.granted_us))

    def _take(self, record: Record) -> None:
        event, now = record.event, record.now
        match event:
            case PhaseRequested(client, request):
                if (client, request) not in self._seen:
                    self._seen.add((client, request))
                    self._asked[client, request] = _Open(event, self._own(client, now))
            case RequestCancelled(client, request):
                self._asked.pop((client, request), None)
            case PhaseYielded(lease, groups):
                self._yield(lease, groups, now)
            case JobLeft(job):
                self.left_us[job] = self._own(self._last.get(job, ""), now)
            case _:
                pass
        for command in record.commands:
            match command:
                case Grant():
                    self._grant(command, now)
                case Refuse(client, request):
                    self._asked.pop((client, request), None)
                case Revoke(lease, groups):
                    self._yield(lease, groups, now)
                case Suspend(lease):
                    self._stopped[lease] = now
                case _:
                    pass

    def _own(self, client: str, now: int) -> int:
        return now - self._paused.get(client, 0)

    def _grant(self, grant: Grant, now: int) -> None:
        stopped = self._stopped.pop(grant.lease, None)
        if stopped is not None:
            self._paused[grant.client] = self._paused.get(grant.client, 0) + now - stopped
            return
        asked = self._asked.pop((grant.client, grant.request), None)
        if asked is not None:
            asked.granted_us = self._own(grant.client, now)
            self._leases[grant.lease] = asked

    def _yield(self, lease: int, groups: tuple[str, ...], now: int) -> None:
        turn = self._leases.get(lease)
        if turn is None:
            return
        given = tuple(group for group in turn.held if group in (groups or turn.held))
        if not given:
            return
        turn.held = [group for group in turn.held if group not in given]
        turn.yields.append((self._own(turn.event.client, self._stopped.pop(lease, now)), given))
        self._last[turn.event.job] = turn.event.client
        if not turn.held:
            del self._leases[lease]
            assert turn.granted_us is not None
            event = turn.event
            self._found.append(
                Turn(
                    event.job,
                    event.groups,
                    turn.asked_us,
                    turn.granted_us,
                    tuple(turn.yields),
                    event.phase,
                    event.client,
                    event.estimate_us,
                )
            )


def _jobs(records: Sequence[Record]) -> dict[str, Job]:
    """Every job as it was declared last."""
    jobs: dict[str, Job] = {}
    for record in records:
        if isinstance(record.event, JobAdded | JobUpdated):
            jobs[record.event.job.name] = record.event.job
    return jobs


def _costs(records: Sequence[Record]) -> RecordedCosts:
    """How long each node-call took, by job in command order; one that never ended, or failed, takes what is usual."""
    calls: dict[str, list[int | None]] = {}
    open_calls: dict[tuple[int, str], tuple[str, int, int, type, str]] = {}
    usual: dict[tuple[type, str], list[int]] = {}
    for record in records:
        match record.event:
            case Parked(op, node) | Restored(op, node) | Discarded(op, node):
                known = open_calls.pop((op, node), None)
                if known is not None:
                    job, n, since, kind, group = known
                    calls[job][n] = record.now - since
                    usual.setdefault((kind, group), []).append(record.now - since)
            case MoveFailed(op, node):
                open_calls.pop((op, node), None)
            case JobLost(job):
                open_calls = {key: call for key, call in open_calls.items() if call[0] != job}
            case _:
                pass
        for command in record.commands:
            if isinstance(command, Park | Restore | Discard):
                line = calls.setdefault(command.job, [])
                for node in command.nodes:
                    open_calls[command.op, node] = (command.job, len(line), record.now, type(command), command.group)
                    line.append(None)
    others = FixedTable(
        {group: median(lengths) for (kind, group), lengths in usual.items() if kind is Park},
        {group: median(lengths) for (kind, group), lengths in usual.items() if kind is Restore},
    )
    return RecordedCosts({job: tuple(line) for job, line in calls.items()}, others)
