"""`tsched sim run`: any workload, under any policies, with any number of seeds."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from tsched.cli.evaluate import Case, Outcome, evaluate, log_of, policy_specs
from tsched.cli.loading import warnings_on_stderr
from tsched.cli.output import check_writable, print_json, print_table, write_whole
from tsched.errors import Invalid
from tsched.report import Section, facts, number, page, table
from tsched.sim.load import load_fit, load_workload

SHOWN_FAILURES = 5


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
@click.option("--policy", "policies", default="all", help="Policies, as a,b or a?option=1; all of them by default.")
@click.option("--seeds", default=1, type=click.IntRange(1), help="Run with so many seeds; means and intervals.")
@click.option("--seed", type=int, help="The first seed; the workload's own by default.")
@click.option("--fit", type=float, help="Learn from this first share of a recording, predict the rest.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a file, one a line.")
@click.option("--report", type=click.Path(path_type=Path), help="Write an HTML page with Gantt charts.")
@click.option("--log", type=click.Path(path_type=Path), help="Write the decision log (of one file under one policy).")
def run(
    files: tuple[Path, ...],
    policies: str,
    seeds: int,
    seed: int | None,
    fit: float | None,
    as_json: bool,
    report: Path | None,
    log: Path | None,
) -> None:
    """Simulate FILE... under policies, and compare.

    A FILE is a scenario (TOML), a workload trace, a decision log (JSON lines or SQLite) or a run that llm-d recorded;
    which, its content tells. The baselines are every job alone on its own devices, and one job after another.
    """
    specs = policy_specs(policies)
    if log is not None and (len(files) > 1 or len(specs) > 1):
        raise Invalid(
            f"--log {log}: takes one file under one policy, not {len(files)} under {len(specs)}; add --policy"
        )
    check_writable(report, log, *files)
    check_writable(log, *files)
    cases = [load(path, specs, seeds, seed, fit) for path in files]
    outcomes = evaluate(cases, charts=report is not None)
    for case, outcome in zip(cases, outcomes, strict=True):
        complain_of_failures(case, outcome)
        show(outcome, as_json)
    if report is not None:
        sections = [Section(each.summary, each.charts, remarks(each)) for each in outcomes]
        write_whole(report, page(sections).encode())
    if log is not None:
        header, records = log_of(cases[0].workload, specs[0], cases[0].seeds[0])
        write_whole(log, b"".join(msgspec.json.encode(line) + b"\n" for line in (header, *records)))


def load(path: Path, policies: tuple[str, ...], seeds: int, seed: int | None, fit: float | None) -> Case:
    """A file as what is to be run."""
    with warnings_on_stderr():
        fitted = None if fit is None else load_fit(path, fit)
        workload = fitted.expected if fitted is not None else load_workload(path)
    first = workload.seed if seed is None else seed
    return Case(workload, policies, tuple(range(first, first + seeds)), fitted)


def show(outcome: Outcome, as_json: bool) -> None:
    """One line of JSON, or a table with what holds for all of it."""
    if as_json:
        print_json(outcome.summary)
        return
    summary = outcome.summary
    click.echo(f"{summary['workload']}: {'; '.join(facts(summary))}")
    print_table(*table(summary))
    for text in remarks(outcome):
        click.echo(text)
    click.echo()


def remarks(outcome: Outcome) -> list[str]:
    """What a prediction's interval is."""
    found = []
    for entry in outcome.summary["policies"]:
        if "makespan_interval_s" in entry:
            low, high = (number(end) for end in entry["makespan_interval_s"])
            found.append(f"{entry['policy']}: predicted makespan between {low} s and {high} s with 95 % probability")
    return found


def complain_of_failures(case: Case, outcome: Outcome) -> None:
    """Jobs that faults or refusals ended make the figures hard to compare, so it is said."""
    for text in outcome.failures[:SHOWN_FAILURES]:
        click.echo(f"warning: {case.workload.name}, {' '.join(text.split())}", err=True)
    more = len(outcome.failures) - SHOWN_FAILURES
    if more > 0:
        click.echo(f"warning: {case.workload.name}: and {more} more", err=True)
