"""What one simulated run came to, in seconds and shares."""

from __future__ import annotations

from msgspec import Struct, field

from tsched.model import SECOND_US
from tsched.sim.statistics import quantile
from tsched.sim.tally import JobTally, Tally
from tsched.sim.workload import Drawn

SECONDS_PER_HOUR = 3600


class Waits(Struct, frozen=True):
    """Request to grant, restore included, over all turns."""

    median: float = 0.0
    p95: float = 0.0
    max: float = 0.0


class JobResult(Struct, frozen=True):
    """`finish_s` counts from the first request of the run to the job's last yield, `span_s` from the job's arrival.

    `wait_s` is the median of the job's waits. `failed` says why the job did not run to its end, where it did not.
    """

    finish_s: float
    span_s: float
    wait_s: float
    slowdown_vs_dedicated: float | None = None
    failed: str = ""


class Result(Struct, frozen=True):
    """One policy's run of one draw.

    `makespan_s` runs from the first request to the last yield; `gpu_hours` is that for every node there is, `duty` the
    share of it for which a group was held. `switches` counts turns for which states were moved, `switch_s` is how
    long somebody waited for an idle group meanwhile, `switch_median_s` the median over switches.
    `gap_to_lower_bound` is makespan over bound, minus one.
    """

    policy: str
    seed: int
    makespan_s: float
    gpu_hours: float
    duty: dict[str, float]
    wait_s: Waits
    switches: int
    switch_s: float
    switch_median_s: float
    lower_bound_s: float
    gap_to_lower_bound: float
    jobs: dict[str, JobResult] = field(default_factory=dict)


def result(tally: Tally, policy: str, drawn: Drawn) -> Result:
    """The figures of a run of `drawn` that `tally` has seen."""
    start = tally.first_us or 0
    makespan = max(0, tally.last_us - start)
    waits = sorted(wait for job in tally.jobs.values() for wait in job.waits_us)
    switched = sorted(length for group in tally.groups.values() for length in group.switched_us)
    bound = drawn.lower_bound_us
    nodes = sum(len(group.nodes) for group in drawn.workload.groups)
    return Result(
        policy=policy,
        seed=drawn.seed,
        makespan_s=makespan / SECOND_US,
        gpu_hours=nodes * makespan / SECOND_US / SECONDS_PER_HOUR,
        duty={name: group.busy_us / makespan if makespan else 0.0 for name, group in tally.groups.items()},
        wait_s=Waits(
            quantile(waits, 0.5) / SECOND_US,
            quantile(waits, 0.95) / SECOND_US,
            (waits[-1] if waits else 0) / SECOND_US,
        ),
        switches=len(switched),
        switch_s=sum(switched) / SECOND_US,
        switch_median_s=quantile(switched, 0.5) / SECOND_US,
        lower_bound_s=bound / SECOND_US,
        gap_to_lower_bound=makespan / bound - 1 if bound else 0.0,
        jobs={name: _job(job, start) for name, job in tally.jobs.items()},
    )


def _job(job: JobTally, start: int) -> JobResult:
    last = max(job.last_yield_us, job.arrived_us)
    return JobResult(
        finish_s=max(0, last - start) / SECOND_US,
        span_s=(last - job.arrived_us) / SECOND_US,
        wait_s=quantile(sorted(job.waits_us), 0.5) / SECOND_US,
        failed="" if job.done and not job.failed else job.failed or "not done",
    )
