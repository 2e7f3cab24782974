"""One workload's figures under several policies and seeds: the object that `sim run --json` prints.

baselines = [Baselines(workload.draw(seed)) for seed in seeds]
results = [simulate(workload, policy, seed, keep=False).result for policy in policies for seed in seeds]
summary(workload, results, baselines)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tsched.model import SECOND_US
from tsched.sim.baselines import Baselines
from tsched.sim.result import Result
from tsched.sim.statistics import ci95, mean
from tsched.sim.workload import Workload


def summary(workload: Workload, results: Sequence[Result], baselines: Sequence[Baselines]) -> dict[str, Any]:
    """Means over the seeds of `results`, one entry a policy, in the order in which policies first come.

    Args:
        workload: what was run.
        results: every policy's results, each with every seed of `baselines`.
        baselines: one for each seed.
    """
    by_seed = {each.seed: each for each in baselines}
    recorded = None if workload.recorded_makespan_us is None else workload.recorded_makespan_us / SECOND_US
    policies = list(dict.fromkeys(result.policy for result in results))
    return {
        "workload": workload.name,
        "seeds": len(by_seed),
        "lower_bound_s": mean([each.lower_bound_s for each in baselines]),
        "recorded_makespan_s": recorded,
        "baselines": {
            "dedicated": averaged([each.dedicated() for each in baselines]),
            "serial": averaged([each.serial() for each in baselines]),
        },
        "policies": [
            {
                "policy": policy,
                **averaged([row(each, by_seed[each.seed], recorded) for each in results if each.policy == policy]),
            }
            for policy in policies
        ],
    }


def row(result: Result, baselines: Baselines, recorded_s: float | None) -> dict[str, Any]:
    """One policy's figures for one seed."""
    return {
        "makespan_s": result.makespan_s,
        "gpu_hours": result.gpu_hours,
        "duty": result.duty,
        "wait_s": {"median": result.wait_s.median, "p95": result.wait_s.p95, "max": result.wait_s.max},
        "switches": result.switches,
        "switch_s": result.switch_s,
        "switch_median_s": result.switch_median_s,
        "gap_to_lower_bound": result.gap_to_lower_bound,
        "error_vs_recorded": result.makespan_s / recorded_s - 1 if recorded_s else None,
        "jobs": {
            name: {
                "finish_s": job.finish_s,
                "slowdown_vs_dedicated": job.span_s / baselines.spans[name] if baselines.spans[name] else None,
                "wait_s": job.wait_s,
            }
            for name, job in result.jobs.items()
        },
    }


def averaged(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Means, leaf by leaf; of several also `ci95`, half the width of the confidence interval, in the same shape."""
    if len(rows) == 1:
        return dict(rows[0])
    return {**_leaves(rows, mean), "ci95": _leaves(rows, ci95)}


def _leaves(values: Sequence[Any], how: Any) -> Any:
    first = values[0]
    if isinstance(first, dict):
        return {key: _leaves([value[key] for value in values], how) for key in first}
    known = [float(value) for value in values if value is not None]
    return how(known) if known else None
