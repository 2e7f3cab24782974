"""Random workloads for the simulator's tests: small, valid, and never able to deadlock."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st

from tsched.costs import Bandwidth, FixedTable
from tsched.model import Group, Job
from tsched.sim import Acquire, Context, Exponential, Fixed, JobProgram, Lognormal, Run, Uniform, Workload, Yield
from tsched.sim.durations import Duration
from tsched.sim.program import Step
from tsched.sim.workload import WorkloadCosts

GROUPS = ("g0", "g1", "g2")

# A whole simulation or several are run for each example: a quarter of the examples of the profile in force.
FEWER = settings(max_examples=settings().max_examples // 4)


def lengths() -> st.SearchStrategy[Duration]:
    us = st.integers(0, 50)
    return st.one_of(
        st.builds(Fixed, us),
        st.builds(Exponential, us),
        st.builds(Lognormal, us, st.just(0.5)),
        us.map(lambda low: Uniform(low, low + 7)),
    )


@st.composite
def steps(draw: st.DrawFn, fixed: bool = False) -> tuple[Step, ...]:
    """A few turns: alone, on several groups at once, or one within another, always in the order of the names."""
    length = st.builds(Fixed, st.integers(1, 50)) if fixed else lengths()
    found: list[Step] = []
    for _ in range(draw(st.integers(1, 3))):
        first = draw(st.integers(0, 2))
        shape = draw(st.sampled_from(("one", "several", "nested"))) if first < 2 else "one"
        last = draw(st.integers(first + 1, 2)) if first < 2 else 2
        if shape == "several":
            found += [Acquire((GROUPS[first], GROUPS[last]), "both"), Run(draw(length)), Yield((GROUPS[first],))]
            found += [Run(draw(length)), Yield()]
        else:
            found += [Acquire((GROUPS[first],), "one"), Run(draw(length))]
            if shape == "nested":
                found += [Acquire((GROUPS[last],), "within", nested=True), Run(draw(length)), Yield((GROUPS[first],))]
                found.append(Run(draw(length)))
            found.append(Yield())
        found.append(Run(draw(length)))
    return tuple(found)


@st.composite
def workloads(
    draw: st.DrawFn, fixed: bool = False, most_jobs: int = 4, most_iterations: int = 4, contexts: int = 2
) -> Workload:
    capacity = draw(st.sampled_from((None, 100)))
    groups = tuple(Group(name, capacity_bytes=capacity) for name in GROUPS)
    jobs = []
    for index in range(draw(st.integers(1, most_jobs))):
        size = st.integers(0, 60)
        state = draw(st.dictionaries(st.sampled_from(GROUPS), size))
        made = tuple(
            Context(draw(steps(fixed)), draw(st.integers(1, most_iterations)), f"c{number}" if number else "")
            for number in range(draw(st.integers(1, contexts)))
        )
        jobs.append(JobProgram(Job(f"j{index}", state_bytes=state), made, draw(st.integers(0, 30))))
    models: tuple[WorkloadCosts, ...] = (FixedTable(), FixedTable(default_us=3), Bandwidth(10_000_000, 1))
    costs = draw(st.sampled_from(models))
    return Workload("random", groups, tuple(jobs), costs, seed=draw(st.integers(0, 3)))
