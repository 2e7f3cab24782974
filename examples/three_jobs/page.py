"""The HTML report of the demo: the table, who held which device when, and the learning curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from examples.three_jobs.figures import HEADINGS, Row
from examples.three_jobs.runner import Run
from tsched.cli.output import write_whole
from tsched.curves import Curves
from tsched.model import Group
from tsched.report import Grid, Section, chart, page
from tsched.sim.simulator import Simulation
from tsched.sim.tally import tally


def write_page(
    path: Path,
    groups: Sequence[Group],
    runs: Mapping[str, Run],
    predicted: Simulation,
    table: Sequence[Row],
    remarks: Sequence[str],
) -> Path:
    """Every run as a Gantt chart, the first of which is the shared one, with its prediction after it."""
    (shared, run), *solos = runs.items()
    charts = [chart(shared, groups, run.records), chart(f"{shared}, predicted", groups, predicted.records)]
    charts += [chart(f"{name} alone", groups, each.records) for name, each in solos]
    grids = (Grid(HEADINGS, [row.cells() for row in table]), _duty(groups, runs))
    section = Section({"workload": "three jobs on two devices"}, charts, remarks, grids, _curves(run))
    write_whole(path, page([section], "three jobs").encode())
    return path


def _duty(groups: Sequence[Group], runs: Mapping[str, Run]) -> Grid:
    """How much of each run every device was held."""
    rows = []
    for name, run in runs.items():
        total = tally(groups, run.records)
        length = max(1, total.last_us - (total.first_us or 0))
        shares = [f"{total.groups[group.name].busy_us / length * 100:.1f} %" for group in groups]
        rows.append([name, *shares])
    return Grid(("duty cycle", *(group.name for group in groups)), rows)


def _curves(run: Run) -> list[Curves]:
    outcomes = run.outcomes
    return [
        Curves("reward", {name: each.rewards for name, each in outcomes.items()}, "round"),
        Curves("supervised loss", {name: each.imitation_loss for name, each in outcomes.items()}, "phase"),
        Curves("policy loss", {name: each.policy_loss for name, each in outcomes.items() if each.policy_loss}, "phase"),
    ]
