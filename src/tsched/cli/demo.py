"""`tsched demo`: a recorded run, predicted under every policy and run live in virtual time: one table, one page."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from tsched.cli import FAILED
from tsched.cli.evaluate import Case, Outcome, evaluate, log_of, policy_specs
from tsched.cli.output import progress, write_whole
from tsched.cli.run import complain_of_failures, load, show
from tsched.errors import Invalid
from tsched.journal import Record
from tsched.plugins import policy_names
from tsched.report import Section, number, page, percent
from tsched.sim.fit import Fitted
from tsched.sim.load import load_fit
from tsched.sim.predict import predict
from tsched.testing.play import play

RECORDING = Path("traces", "verl_sync_2xh100.json")
SCENARIO = Path("simulations", "demo.toml")
LEARNED = 0.5


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--policy", "policies", default="all", help="Policies, as a,b; all of them by default.")
@click.option("--output", default=Path("build", "demo.html"), type=click.Path(path_type=Path), show_default=True)
def demo(file: Path | None, policies: str, output: Path) -> None:
    """Predict a recorded run under every policy, run it live in virtual time, and compare.

    FILE is by default the recorded run of two jobs on two H100s, where it is at hand, else a scenario of this project.
    """
    path = file or find_input()
    case = load(path, policy_specs(policies), 1, None, None)
    click.echo(f"{path}: {len(case.workload.jobs)} jobs on {', '.join(group.name for group in case.workload.groups)}\n")
    (outcome,) = evaluate([case], charts=True)
    complain_of_failures(case, outcome)
    show(outcome, as_json=False)
    comparisons, differ = compare(case)
    remarks = [*comparisons, *fitted(path, case)]
    for text in remarks:
        click.echo(text)
    write_report(output, outcome, remarks)
    if differ:
        raise click.exceptions.Exit(FAILED)


def find_input() -> Path:
    """The recording, from TSCHED_SHARED or beside the checkout, else the scenario in the checkout."""
    found = [path for path in _places() if path.is_file()]
    if not found:
        raise Invalid(f"neither {RECORDING} nor {SCENARIO} is here; run this in a checkout, or name a file")
    return found[0]


def _places() -> Iterator[Path]:
    here = Path()
    checkout = Path(os.path.relpath(Path(__file__).resolve().parents[3]))
    shared = os.environ.get("TSCHED_SHARED")
    if shared:
        yield Path(shared, RECORDING)
    for root in (here, checkout):
        yield root / ".." / "shared" / RECORDING
    for root in (here, checkout):
        yield root / SCENARIO


def compare(case: Case) -> tuple[list[str], bool]:
    """The simulated decision log beside the one of the live scheduler, for every policy."""
    same: list[str] = []
    lines: list[str] = []
    seed = case.seeds[0]
    counts = set[int]()
    with progress("running live in virtual time", len(case.policies)) as step:
        for policy in case.policies:
            simulated = log_of(case.workload, policy, seed)[1]
            live = play(case.workload, policy, seed).records
            step()
            difference = first_difference(simulated, live)
            if difference is None:
                same.append(policy)
                counts.add(len(live))
            else:
                lines.append(f"{policy}: the live and the simulated decision log differ: {difference}")
    if same:
        count = f"{min(counts)}" if len(counts) == 1 else f"{min(counts)} to {max(counts)}"
        lines.insert(0, f"live and simulated decision logs: {count} records, identical, under {', '.join(same)}")
    return lines, len(same) < len(case.policies)


def first_difference(simulated: Sequence[Record], live: Sequence[Record]) -> str | None:
    """Where two logs part, or None."""
    for index, (one, other) in enumerate(itertools.zip_longest(simulated, live)):
        if one != other:
            return f"record {index} is {one} simulated, {other} live"
    return None


def fitted(path: Path, case: Case) -> list[str]:
    """How well the recording's second half is predicted from its first, under the policy that it was made with."""
    recorded_under = case.workload.meta.get("policy", "fifo")
    if case.workload.recorded_makespan_us is None or recorded_under not in policy_names():
        return []
    try:
        learned: Fitted = load_fit(path, LEARNED)
    except Invalid:
        return []  # a scenario may name a recorded makespan and yet have no recorded turns to learn from
    said = predict(learned, recorded_under)
    return [
        f"learned from the first {percent(LEARNED)}: {number(said.makespan_s)} s predicted "
        f"(95 %: {number(said.low_s)} to {number(said.high_s)} s), {number(said.recorded_makespan_s)} s recorded, "
        f"error {percent(said.error, sign=True)}"
    ]


def write_report(output: Path, outcome: Outcome, remarks: Sequence[str]) -> None:
    """The page, in a folder that is made where it is missing."""
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Invalid(f"{output}: folder {output.parent} cannot be made: {error.strerror}") from error
    write_whole(output, page([Section(outcome.summary, outcome.charts, remarks)], "tsched demo").encode())
    click.echo(f"report: {output}")
