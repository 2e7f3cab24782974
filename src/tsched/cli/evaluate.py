"""Workloads under policies and seeds, spread over all cores: what `sim run` and `demo` show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from tsched.cli.pool import spread
from tsched.errors import Invalid
from tsched.journal import Header, Record
from tsched.plugins import load_policy, policy_names
from tsched.report import Chart, chart
from tsched.sim.baselines import Baselines
from tsched.sim.fit import Fitted
from tsched.sim.predict import Prediction, predict
from tsched.sim.result import Result
from tsched.sim.simulator import simulate
from tsched.sim.summary import summary
from tsched.sim.workload import Workload


class Case(Struct, frozen=True):
    """One workload to be run under each policy with each seed; `fitted` where it is a prediction."""

    workload: Workload
    policies: tuple[str, ...]
    seeds: tuple[int, ...]
    fitted: Fitted | None = None


class Outcome(Struct, frozen=True):
    """What came of a case: the object that `--json` prints, and of the first seed charts and jobs that failed."""

    summary: dict[str, Any]
    charts: tuple[Chart, ...] = ()
    failures: tuple[str, ...] = ()


class _Task(Struct, frozen=True):
    """One piece of a case; `policy` is empty where it is the baselines."""

    workload: Workload
    seed: int
    policy: str = ""
    draw: bool = False
    fitted: Fitted | None = None


class _Run(Struct, frozen=True):
    result: Result
    chart: Chart | None


_Done = Baselines | _Run | Prediction


def policy_specs(text: str) -> tuple[str, ...]:
    """`a,b` or `all` as specs, each of which makes a policy; raises as `load_policy` does."""
    specs = tuple(policy_names()) if text == "all" else tuple(spec.strip() for spec in text.split(",") if spec.strip())
    if not specs:
        raise Invalid(f"--policy {text!r}: name at least one of {', '.join(policy_names())}, or all")
    for spec in specs:
        load_policy(spec)
    return tuple(dict.fromkeys(specs))


def evaluate(cases: Sequence[Case], charts: bool = False) -> list[Outcome]:
    """Every case's outcome, in order; `charts` are drawn of the first seed."""
    pieces = [_tasks(case, charts) for case in cases]
    done = iter(spread("simulating", _do, [task for tasks in pieces for task in tasks]))
    return [_outcome(case, [next(done) for _ in tasks]) for case, tasks in zip(cases, pieces, strict=True)]


def _tasks(case: Case, charts: bool) -> list[_Task]:
    tasks = [
        _Task(case.workload, seed, policy, charts and seed == case.seeds[0])
        for policy in case.policies
        for seed in case.seeds
    ]
    tasks += [_Task(case.workload, seed) for seed in case.seeds]
    if case.fitted is not None:
        tasks += [_Task(case.workload, case.seeds[0], policy, fitted=case.fitted) for policy in case.policies]
    return tasks


def _do(task: _Task) -> _Done:
    """Runs in whatever process."""
    if task.fitted is not None:
        return predict(task.fitted, task.policy)
    drawn = task.workload.draw(task.seed)
    if not task.policy:
        return Baselines(drawn)
    run = simulate(drawn, task.policy, keep=task.draw)
    return _Run(run.result, chart(task.policy, task.workload.groups, run.records) if task.draw else None)


def _outcome(case: Case, done: Sequence[_Done]) -> Outcome:
    runs = [each for each in done if isinstance(each, _Run)]
    figures = summary(
        case.workload, [run.result for run in runs], [each for each in done if isinstance(each, Baselines)]
    )
    predictions = {each.policy: each for each in done if isinstance(each, Prediction)}
    for entry in figures["policies"]:
        if entry["policy"] in predictions:
            said = predictions[entry["policy"]]
            entry["makespan_interval_s"] = [said.low_s, said.high_s]
    drawn = tuple(run.chart for run in runs if run.chart is not None)
    return Outcome(figures, drawn, tuple(_failures(runs)))


def _failures(runs: Sequence[_Run]) -> list[str]:
    return [
        f"under {run.result.policy}, seed {run.result.seed}: job {name!r} did not run to its end: {job.failed}"
        for run in runs
        for name, job in run.result.jobs.items()
        if job.failed
    ]


def log_of(workload: Workload, policy: str, seed: int) -> tuple[Header, list[Record]]:
    """One run's decision log."""
    run = simulate(workload, policy, seed)
    return run.header, run.records
