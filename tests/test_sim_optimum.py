"""The best order, found by search, lies between the bound and every policy."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sim_strategies import FEWER, workloads
from tsched.errors import Invalid
from tsched.model import Group, Job
from tsched.plugins import policy_names
from tsched.sim import Acquire, Context, Fixed, JobProgram, Run, Workload, Yield, simulate
from tsched.sim.optimum import optimum_us


@FEWER
@given(workloads(fixed=True, most_jobs=3, most_iterations=1, contexts=1), st.sampled_from(policy_names()))
def test_the_optimum_lies_between_the_bound_and_every_policy(workload: Workload, policy: str) -> None:
    drawn = workload.draw()
    best = optimum_us(drawn)
    assert drawn.lower_bound_us <= best <= simulate(drawn, policy).result.makespan_s * 1e6 + 1e-3


def test_the_best_order_is_found_where_arrival_order_is_not_it() -> None:
    """Johnson's rule: on two machines one after another, short first operations go first."""

    def job(name: str, first: int, second: int) -> JobProgram:
        steps = (
            Acquire(("g",)),
            Run(Fixed(first)),
            Yield(),
            Acquire(("h",)),
            Run(Fixed(second)),
            Yield(),
        )
        return JobProgram(Job(name), (Context(steps),))

    groups = (Group("g", capacity_bytes=10), Group("h", capacity_bytes=10))
    jobs = (job("a", 30, 5), job("b", 5, 30), job("c", 10, 10))
    assert optimum_us(Workload("w", groups, jobs).draw()) == 5 + 30 + 10 + 5


def test_switches_make_it_worth_while_to_stay_and_cost_nothing_after_a_job_that_has_left() -> None:
    turn = (Acquire(("g",)), Run(Fixed(10)), Yield())

    def best(*after: Run) -> int:
        jobs = tuple(JobProgram(Job(name), (Context((*turn, *turn, *after)),)) for name in "ab")
        return optimum_us(Workload("w", (Group("g"),), jobs).draw(), {"g": 7})

    assert best() == 40
    assert best(Run(Fixed(1000))) == 47


def test_a_search_that_would_take_too_long_is_refused() -> None:
    context = Context((Acquire(("g",)), Run(Fixed(10)), Yield(), Run(Fixed(3))), 8)
    jobs = tuple(JobProgram(Job(name), (context,)) for name in "abc")
    with pytest.raises(Invalid, match="fewer jobs or iterations"):
        optimum_us(Workload("w", (Group("g"),), jobs).draw(), most_nodes=50)
