"""An independent witness of safety: reads events and commands, knows nothing of the engine, and objects.

It keeps its own small model of who holds what and what is in memory, from the decision log alone, and raises
`Violation` naming the rule of docs/rules.md that a command broke. Run it over any log, live, simulated or drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tsched.commands import Command, Discard, Grant, Park, Quarantine, Restore, Revoke, Suspend
from tsched.events import (
    Discarded,
    Event,
    EvictionForced,
    JobAdded,
    JobLeft,
    JobLost,
    JobReadmitted,
    JobUpdated,
    Parked,
    PhaseYielded,
    Restored,
)
from tsched.model import Group, Job


class Violation(AssertionError):
    """A rule of the engine was broken."""


class Witness:
    """Feed it every record in order; it raises `Violation` at the first command that breaks a rule."""

    def __init__(self, groups: Iterable[Group]) -> None:
        self.groups = {group.name: group for group in groups}
        self.jobs: dict[str, Job] = {}
        self.holder: dict[str, tuple[int, str]] = {}
        self.token = dict.fromkeys(self.groups, 0)
        self.where: dict[tuple[str, str], str] = {}
        self.sizes: dict[tuple[str, str], int] = {}
        self.unsafe: set[tuple[str, str]] = set()
        self.moves: dict[int, tuple[str, str, set[str]]] = {}
        self.quarantined: set[str] = set()
        self.doomed: set[tuple[str, str]] = set()
        self.excused: set[str] = set()

    def saw(self, event: Event, commands: Sequence[Command]) -> None:
        self._event(event)
        for command in commands:
            self._command(command)

    def _event(self, event: Event) -> None:
        match event:
            case JobAdded(job) if job.name not in self.jobs:
                self.jobs[job.name] = job
            case JobUpdated(job) if job.name in self.jobs:
                self.jobs[job.name] = job
                self._resized(job)
            case JobLeft(name) | JobLost(name):
                self.jobs.pop(name, None)
                self.quarantined.discard(name)
                self.doomed.update(key for key in self.where if key[1] == name)
            case JobReadmitted(name):
                self.quarantined.discard(name)
            case PhaseYielded(lease, groups):
                for name, (holder, _) in list(self.holder.items()):
                    if holder == lease and (not groups or name in groups):
                        del self.holder[name]
            case Parked(op, node) | Restored(op, node) | Discarded(op, node):
                self._answered(event, op, node)
            case EvictionForced(group, job):
                self._drop((group, job))
            case _:
                pass

    def _resized(self, job: Job) -> None:
        """A job that grew in memory is a fact: its group is excused until what is there fits again."""
        for name, group in self.groups.items():
            if (name, job.name) in self.where and (name, job.name) not in self.doomed:
                self.sizes[name, job.name] = _size(group, job)
                self.excused.add(name)

    def _answered(self, event: Event, op: int, node: str) -> None:
        if op not in self.moves:
            return
        group, job, waiting = self.moves[op]
        waiting.discard(node)
        if waiting:
            return
        del self.moves[op]
        match event:
            case Parked():
                self.where[group, job] = "parked"
                self.unsafe.discard((group, job))
            case Restored():
                self.where[group, job] = "resident"
            case _:
                self._drop((group, job))

    def _drop(self, key: tuple[str, str]) -> None:
        self.where.pop(key, None)
        self.doomed.discard(key)
        self.unsafe.discard(key)
        self.moves = {op: move for op, move in self.moves.items() if (move[0], move[1]) != key}

    def _command(self, command: Command) -> None:
        match command:
            case Grant():
                self._grant(command)
            case Park(op, group, job) | Restore(op, group, job) | Discard(op, group, job):
                self._move(command, op, group, job)
            case Revoke(lease, groups):
                self._taken(lease, set(groups))
            case Suspend(lease):
                self._taken(lease, set(self.groups))
            case Quarantine(job):
                self.quarantined.add(job)
            case _:
                pass

    def _taken(self, lease: int, groups: set[str]) -> None:
        for name, (holder, job) in list(self.holder.items()):
            if holder == lease and name in groups:
                del self.holder[name]
                if (name, job) in self.where:
                    self.unsafe.add((name, job))

    def _grant(self, grant: Grant) -> None:
        job = grant.job
        self._must(job in self.jobs, "E2", f"{grant} to a job that is not registered")
        held = {name for name, (lease, _) in self.holder.items() if lease == grant.lease}
        if held == set(grant.tokens) and all(self.token[name] >= token for name, token in grant.tokens.items()):
            return
        self._must(job not in self.quarantined, "E16", f"{grant} to a quarantined job")
        for name, token in grant.tokens.items():
            self._must(name not in self.holder, "E5", f"{grant} while {self.holder.get(name)} holds {name}")
            self._must(token > self.token[name], "E4", f"{grant}: token not above {self.token[name]}")
            others = [other for group, other in self.unsafe if group == name]
            self._must(not others, "E12", f"{grant} while {others} may still compute on {name}")
            where = self.where.get((name, job), "resident")
            self._must(where == "resident", "E5", f"{grant} while its state on {name} is {where}")
            self.token[name] = token
            self.holder[name] = (grant.lease, job)
            if (name, job) not in self.where:
                self.sizes[name, job] = _size(self.groups[name], self.jobs[job])
            self.where[name, job] = "resident"
            self._memory(name)

    def _move(self, move: Park | Restore | Discard, op: int, group: str, job: str) -> None:
        known = self.moves.get(op)
        if known is None:
            self._must(move.token > self.token[group], "E4", f"{move}: token not above {self.token[group]}")
            self.token[group] = move.token
            self._must((group, job) in self.where, "R1", f"{move} of a state that is not there")
            holder = self.holder.get(group)
            self._must(holder is None or holder[1] != job, "E5", f"{move} while {job} computes on {group}")
            self.moves = {key: value for key, value in self.moves.items() if value[:2] != (group, job)}
            self.moves[op] = (group, job, set(move.nodes))
        before = self.where[group, job]
        self.where[group, job] = {Park: "parking", Restore: "restoring", Discard: "discarding"}[type(move)]
        if isinstance(move, Discard) and before in ("parked", "dropping"):
            self.where[group, job] = "dropping"
        self._memory(group)

    def _memory(self, name: str) -> None:
        """What fits is in docs/rules.md, R1 to R4."""
        group = self.groups[name]
        there = [job for (at, job), where in self.where.items() if at == name and where not in ("parked", "dropping")]
        used = sum(self.sizes[name, job] for job in there)
        capacity = 1 if group.capacity_bytes is None else group.capacity_bytes
        holder = self.holder.get(name)
        if holder is not None and group.capacity_bytes is not None and holder[1] in self.jobs:
            used += self.jobs[holder[1]].turn_bytes.get(name, 0)
        if used <= capacity:
            self.excused.discard(name)
        self._must(
            used <= capacity or name in self.excused, "R2", f"{used} bytes on {name} of {capacity}: {sorted(there)}"
        )

    def _must(self, holds: bool, rule: str, what: str) -> None:
        if not holds:
            raise Violation(f"rule {rule}: {what}")


def _size(group: Group, job: Job) -> int:
    """What the job's state takes there: what it declared, else all that its working memory leaves."""
    declared = job.state_bytes.get(group.name)
    if group.capacity_bytes is None:
        return 1 if declared is None else min(declared, 1)
    return max(0, group.capacity_bytes - job.turn_bytes.get(group.name, 0)) if declared is None else declared
