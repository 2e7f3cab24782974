"""The whole claim, measured: three jobs in turns on two devices, then each alone, and the table of both.

    python -m examples.three_jobs

The learning curves and final weights of both ways must be the same to the last bit; if they are not, it ends with 1.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import anyio
import click

from examples.three_jobs.devices import devices
from examples.three_jobs.figures import HEADINGS, measured, remarks, rows
from examples.three_jobs.foreign_load import Load, LoadMeter
from examples.three_jobs.jobs import JOBS, Scale, job
from examples.three_jobs.moves import Moves
from examples.three_jobs.page import write_page
from examples.three_jobs.plan import Phase, plan
from examples.three_jobs.prediction import predict
from examples.three_jobs.process import TRAINERS
from examples.three_jobs.runner import Run, Stage, run
from tsched.cli import FAILED, run_and_exit
from tsched.cli.output import print_json, print_table
from tsched.errors import Invalid
from tsched.journal import Record

SHARED_MEMORY = Path("/dev/shm")
SHARED = "time-sliced"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--scale", type=click.Choice(["full", "tiny"]), default="full", show_default=True)
@click.option("--seed", default=0, show_default=True)
@click.option("--policy", default="fifo", show_default=True, help="Who is next, as `tsched policies` lists them.")
@click.option(
    "--room", default=0.67, show_default=True, help="Device memory, as a share of what all jobs need together."
)
@click.option("--output", type=click.Path(path_type=Path), default=Path("build", "three_jobs"), show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print the figures as one JSON object.")
def main(scale: Scale, seed: int, policy: str, room: float, output: Path, as_json: bool) -> None:
    """Train two models by reward and one by example: together in turns on two devices, then each by itself."""
    if not 0 < room <= 1:
        raise Invalid(f"--room must be more than 0 and at most 1, not {room}")
    output.mkdir(parents=True, exist_ok=True)
    meter = LoadMeter()
    with _folder() as folder:
        stage = Stage(scale, seed, policy, devices([job(name, scale) for name in JOBS], folder, room), folder)
        with _progress(len(JOBS) * 2, scale) as tick:
            runs = _run_all(stage, output, tick)
    code = _show(stage, runs, meter.read(), output, as_json)
    raise click.exceptions.Exit(code)


def _run_all(stage: Stage, output: Path, tick: Callable[[str, str, Phase], None]) -> dict[str, Run]:
    """Together first, then each alone; by name."""

    def one(name: str, jobs: Sequence[str], moves: bool) -> Run:
        log = output / f"{name}.jsonl"
        return anyio.run(partial(run, jobs, stage, log, partial(tick, name), moves=moves))

    runs = {SHARED: one(SHARED, list(JOBS), False)}
    for name in JOBS:
        runs[name] = one(name, [name], True)
    return runs


def _show(stage: Stage, runs: dict[str, Run], load: Load, output: Path, as_json: bool) -> int:
    groups = stage.devices.groups()
    figures = {name: measured(groups, each.records, TRAINERS) for name, each in runs.items()}
    shared = figures.pop(SHARED)
    logs: dict[str, Sequence[Record]] = {name: runs[name].records for name in JOBS}
    predicted = predict(logs, groups, _moves(runs), stage.policy)
    table = rows(figures, shared, predicted.result, TRAINERS)
    same, differences = _compare(runs)
    said = [*remarks(figures, shared, predicted.result), *same, *differences, str(load)]
    if as_json:
        print_json({"rows": table, "remarks": said, "foreign_load": load.share, "identical": not differences})
    else:
        print_table(HEADINGS, [row.cells() for row in table])
        click.echo()
        for text in said:
            click.echo(text)
    page = write_page(output / "report.html", groups, runs, predicted, table, said)
    click.echo(f"report: {page}; decision logs: {output}/*.jsonl", err=as_json)
    return FAILED if differences else 0


def _compare(runs: dict[str, Run]) -> tuple[list[str], list[str]]:
    """What is the same in turns as alone, and what is not."""
    same, differences = [], []
    for name in JOBS:
        together, alone = runs[SHARED].outcomes[name], runs[name].outcomes[name]
        wrong = together.differences(alone)
        if wrong:
            differences.append(f"{name}: NOT as in its solo run: {', '.join(wrong)}")
        else:
            curve = f"rewards {together.rewards[0]:.2f} to {together.rewards[-1]:.2f}"
            same.append(f"{name}: losses, rewards and final weights as in its solo run, bit for bit; {curve}")
    return same, differences


def _moves(runs: dict[str, Run]) -> Moves:
    found: Moves = {}
    for name in JOBS:
        for key, took in runs[name].moves.items():
            found.setdefault(key, []).extend(took)
    return found


@contextmanager
def _folder() -> Iterator[Path]:
    """Where weights pass from trainers to samplers: shared memory, where there is any."""
    with tempfile.TemporaryDirectory(
        prefix="three-jobs-", dir=SHARED_MEMORY if SHARED_MEMORY.is_dir() else None
    ) as made:
        yield Path(made)


@contextmanager
def _progress(times: int, scale: Scale) -> Iterator[Callable[[str, str, Phase], None]]:
    """A bar on a terminal, else a line whenever another run begins; both on stderr."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    total = 2 * sum(sum(phase.device != "cpu" for phase in plan(job(name, scale))) for name in JOBS)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("starting", total=total)
        seen: set[str] = set()

        def tick(run: str, name: str, phase: Phase) -> None:
            if run not in seen and not console.is_terminal:
                console.print(f"running {run}")
            seen.add(run)
            bar.update(task, advance=1, description=f"{run}: {name} {'+'.join(phase.work)} {phase.step}")

        yield tick


if __name__ == "__main__":
    run_and_exit(partial(main.main, standalone_mode=False))
