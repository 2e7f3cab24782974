"""The object that `sim run --json` prints: its keys are fixed, its means and intervals right."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tsched.model import Group, Job
from tsched.sim import Acquire, Context, Exponential, JobProgram, Run, Workload, Yield, simulate
from tsched.sim.baselines import Baselines
from tsched.sim.summary import averaged, summary

STEPS = (
    Acquire(("t",)),
    Run(Exponential(10_000_000)),
    Yield(),
    Acquire(("s",)),
    Run(Exponential(10_000_000)),
    Yield(),
)
WORKLOAD = Workload(
    "w",
    (Group("t", nodes=("0", "1")), Group("s")),
    tuple(JobProgram(Job(name), (Context(STEPS, 5),)) for name in "ab"),
    recorded_makespan_us=100_000_000,
)
KEYS = {
    "policy",
    "makespan_s",
    "gpu_hours",
    "duty",
    "wait_s",
    "switches",
    "switch_s",
    "switch_median_s",
    "gap_to_lower_bound",
    "error_vs_recorded",
    "jobs",
}


def summarized(seeds: int) -> dict[str, Any]:
    baselines = [Baselines(WORKLOAD.draw(seed)) for seed in range(seeds)]
    results = [simulate(WORKLOAD, policy, seed).result for policy in ("fifo", "fair_share") for seed in range(seeds)]
    return summary(WORKLOAD, results, baselines)


def test_one_seed_gives_plain_figures() -> None:
    found = summarized(1)
    assert list(found) == ["workload", "seeds", "lower_bound_s", "recorded_makespan_s", "baselines", "policies"]
    assert (found["workload"], found["seeds"], found["recorded_makespan_s"]) == ("w", 1, 100.0)
    fifo, fair = found["policies"]
    assert (fifo["policy"], fair["policy"]) == ("fifo", "fair_share")
    assert set(fifo) == KEYS
    assert set(fifo["wait_s"]) == {"median", "p95", "max"}
    assert set(fifo["jobs"]["a"]) == {"finish_s", "slowdown_vs_dedicated", "wait_s"}
    assert fifo["error_vs_recorded"] == pytest.approx(fifo["makespan_s"] / 100 - 1)
    assert fifo["gpu_hours"] == pytest.approx(3 * fifo["makespan_s"] / 3600)
    assert fifo["jobs"]["a"]["slowdown_vs_dedicated"] >= 1
    json.dumps(found)


def test_several_seeds_give_means_and_intervals_of_the_same_shape() -> None:
    found = summarized(4)
    fifo = found["policies"][0]
    assert set(fifo["ci95"]) == KEYS - {"policy"}
    makespans = [simulate(WORKLOAD, "fifo", seed).result.makespan_s for seed in range(4)]
    assert fifo["makespan_s"] == pytest.approx(sum(makespans) / 4)
    assert fifo["ci95"]["makespan_s"] > 0
    assert set(fifo["ci95"]["duty"]) == {"t", "s"}
    json.dumps(found)


def test_baselines_bracket_every_policy() -> None:
    for seed in range(5):
        drawn = WORKLOAD.draw(seed)
        baselines = Baselines(drawn)
        dedicated, serial = baselines.dedicated(), baselines.serial()
        assert serial["makespan_s"] == pytest.approx(sum(baselines.spans.values()))
        assert dedicated["makespan_s"] == pytest.approx(max(baselines.spans.values()))
        assert dedicated["gpu_hours"] == pytest.approx(6 * dedicated["makespan_s"] / 3600)
        makespan = simulate(drawn).result.makespan_s
        assert dedicated["makespan_s"] <= makespan + 1e-6
        assert baselines.lower_bound_s <= makespan + 1e-6
        busy = sum(serial["duty"][group] * serial["makespan_s"] for group in ("t", "s"))
        assert busy == pytest.approx(
            sum(duration for job in drawn.jobs for duration in job.contexts[0].durations) / 1e6
        )


def test_what_some_seeds_lack_is_averaged_over_the_others() -> None:
    rows = [{"a": 1.0, "b": None, "c": None}, {"a": 3.0, "b": 5.0, "c": None}]
    means = averaged(rows)
    assert (means["a"], means["b"], means["c"]) == (2.0, 5.0, None)
