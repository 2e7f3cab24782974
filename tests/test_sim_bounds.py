"""No schedule beats the lower bound, and where one machine is all there is the bound is exact."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sim_strategies import FEWER, workloads
from tsched.model import Group, Job
from tsched.plugins import policy_names
from tsched.sim import Acquire, Context, Fixed, JobProgram, Run, Workload, Yield, simulate
from tsched.sim.bounds import Operation, busy_us, jackson_us, operations

OPERATIONS = st.lists(st.builds(Operation, *[st.integers(0, 20)] * 3), min_size=1, max_size=5)


def in_order(order: tuple[Operation, ...]) -> int:
    """The makespan if these run one after another, none interrupted."""
    now = finish = 0
    for op in order:
        now = max(now, op.head_us) + op.length_us
        finish = max(finish, now + op.tail_us)
    return finish


@given(OPERATIONS)
def test_jackson_is_never_above_the_best_order_nor_below_what_is_plain(found: list[Operation]) -> None:
    bound = jackson_us(found)
    assert bound <= min(map(in_order, permutations(found)))
    assert bound >= max(op.head_us + op.length_us + op.tail_us for op in found)
    heads, tails = min(op.head_us for op in found), min(op.tail_us for op in found)
    assert bound >= heads + sum(op.length_us for op in found) + tails


@FEWER
@given(workloads(), st.sampled_from(policy_names()))
def test_no_policy_beats_the_bound(workload: Workload, policy: str) -> None:
    drawn = workload.draw()
    result = simulate(drawn, policy).result
    assert result.makespan_s * 1e6 >= drawn.lower_bound_us - 1e-3
    assert result.gap_to_lower_bound >= -1e-9


@FEWER
@given(workloads())
def test_the_bound_is_at_least_each_group_and_each_critical_path(workload: Workload) -> None:
    drawn = workload.draw()
    assert all(busy <= drawn.lower_bound_us for busy in busy_us(drawn.jobs).values())
    for ops in operations(drawn.jobs).values():
        for op in ops:
            assert op.head_us + op.length_us + op.tail_us - drawn.first_request_us <= drawn.lower_bound_us


def test_heads_and_tails_make_it_tighter_than_busy_time() -> None:
    steps = (Acquire(("s",)), Run(Fixed(10)), Yield(), Acquire(("t",)), Run(Fixed(30)), Yield())
    jobs = tuple(JobProgram(Job(name), (Context(steps),)) for name in "ab")
    workload = Workload("w", (Group("s"), Group("t")), jobs)
    assert busy_us(workload.draw().jobs) == {"s": 20, "t": 60}
    assert workload.draw().lower_bound_us == 70
    assert simulate(workload).result.makespan_s == pytest.approx(70e-6, abs=3e-6)


def test_the_bound_counts_from_the_first_request() -> None:
    steps = (Run(Fixed(50)), Acquire(("s",)), Run(Fixed(10)), Yield(), Run(Fixed(1000)))
    workload = Workload("w", (Group("s"),), (JobProgram(Job("a"), (Context(steps),), 100),))
    assert workload.draw().first_request_us == 150
    assert workload.draw().lower_bound_us == 10
