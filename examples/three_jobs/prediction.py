"""What the simulator says of the shared run, from the solo runs alone: their phase times, and what their moves took."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from tsched.costs import FixedTable
from tsched.events import JobAdded, JobUpdated
from tsched.journal import Record
from tsched.model import SECOND_US, Group, Job
from tsched.sim.recording import Turn, replay
from tsched.sim.replay import turns
from tsched.sim.simulator import Simulation, simulate
from tsched.sim.workload import Workload

Moves = Mapping[tuple[str, str], Sequence[float]]


def predict(solos: Mapping[str, Sequence[Record]], groups: Sequence[Group], moves: Moves, policy: str) -> Simulation:
    """Simulate all jobs together, each doing what it did alone.

    Args:
        solos: the decision log of each job's solo run.
        moves: how many seconds parks and restores took, by ("park" or "restore", group).
    """
    together = [turn for records in solos.values() for turn in _from_zero(turns(records))]
    jobs = [_declared(records) for records in solos.values()]
    programs = tuple(each.program for each in replay(together, jobs))
    return simulate(Workload("three jobs", tuple(groups), programs, _costs(moves)), policy)


def _from_zero(found: Sequence[Turn]) -> Iterator[Turn]:
    """The turns of a job's two processes as those of one client, since it uses them one after the other."""
    start = min(turn.asked_us for turn in found)
    for turn in found:
        yield turn._replace(
            client="",
            asked_us=turn.asked_us - start,
            granted_us=turn.granted_us - start,
            yields=tuple((when - start, groups) for when, groups in turn.yields),
        )


def _declared(records: Sequence[Record]) -> Job:
    """The job as it was declared last."""
    said = [record.event.job for record in records if isinstance(record.event, JobAdded | JobUpdated)]
    return said[-1]


def _costs(moves: Moves) -> FixedTable:
    def table(kind: str) -> dict[str, int]:
        return {
            group: round(median(took) * SECOND_US) for (what, group), took in moves.items() if what == kind and took
        }

    return FixedTable(table("park"), table("restore"))
