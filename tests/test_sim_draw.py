"""Draws are definite, and a job's belong to nobody else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.sim_strategies import FEWER, workloads
from tsched.model import Group, Job
from tsched.sim import Acquire, Context, Exponential, Fixed, JobProgram, Run, Workload, Yield
from tsched.sim.draw import AcquireOp, YieldOp


@FEWER
@given(workloads(), st.integers(0, 5))
def test_the_same_seed_draws_the_same_and_jobs_do_not_disturb_each_other(workload: Workload, seed: int) -> None:
    drawn = workload.draw(seed)
    for index, job in enumerate(workload.draw(seed).jobs):
        alone = workload.only(job.job.name).draw(seed).jobs[0]
        for context, own in zip(job.contexts, alone.contexts, strict=True):
            assert context.durations == own.durations
        assert [c.durations for c in drawn.jobs[index].contexts] == [c.durations for c in job.contexts]


@FEWER
@given(workloads())
def test_a_path_gives_back_all_that_it_takes(workload: Workload) -> None:
    for job in workload.draw().jobs:
        for context in job.contexts:
            held: dict[int, list[str]] = {}
            before = 0
            for now, op in context.path():
                assert now >= before
                before = now
                if isinstance(op, AcquireOp):
                    assert op.slot not in held
                    assert op.parent is None or op.parent in held
                    held[op.slot] = list(op.groups)
                else:
                    assert isinstance(op, YieldOp)
                    for group in op.groups or tuple(held[op.slot]):
                        held[op.slot].remove(group)
                    assert op.last == (not held[op.slot])
                    if op.last:
                        del held[op.slot]
            assert not held


def test_jobs_of_different_names_draw_differently() -> None:
    context = Context((Acquire(("g",)), Run(Exponential(1_000_000)), Yield()), 3)
    workload = Workload("w", (Group("g"),), tuple(JobProgram(Job(name), (context,)) for name in "ab"))
    one, other = workload.draw(0).jobs
    assert one.contexts[0].durations != other.contexts[0].durations
    assert workload.draw(1).jobs[0].contexts[0].durations != one.contexts[0].durations


def test_work_and_remaining_time_are_what_the_program_is_expected_to_take() -> None:
    steps = (Run(Fixed(1)), Acquire(("g",)), Run(Fixed(10)), Yield(), Run(Fixed(100)))
    workload = Workload("w", (Group("g"),), (JobProgram(Job("a"), (Context(steps, 3),)),))
    job = workload.draw().jobs[0]
    assert job.job.work_us == 30
    acquire = job.contexts[0].ops[1]
    assert isinstance(acquire, AcquireOp)
    assert acquire.remaining_us == 110
    assert job.contexts[0].iteration_us == 111


def test_a_yield_of_everything_gives_back_every_lease() -> None:
    steps = (Acquire(("g",)), Acquire(("h",), nested=True), Yield())
    workload = Workload("w", (Group("g"), Group("h")), (JobProgram(Job("a"), (Context(steps),)),))
    ops = workload.draw().jobs[0].contexts[0].ops
    assert [op for op in ops if isinstance(op, YieldOp)] == [YieldOp(0, (), True), YieldOp(1, (), True)]
