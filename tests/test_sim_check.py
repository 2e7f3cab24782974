"""What makes a workload wrong is refused, in one line that names place, value and what would be right."""

from __future__ import annotations

import pytest

from tsched.errors import Invalid
from tsched.model import Group, Job
from tsched.sim import Acquire, Context, Fixed, JobProgram, Run, Workload, Yield
from tsched.sim.program import Step
from tsched.sim.recorded_costs import RecordedCosts

G = (Group("t", capacity_bytes=100), Group("s"))


def job(*steps: Step, name: str = "a", iterations: int = 1, **sizes: int) -> JobProgram:
    return JobProgram(Job(name, state_bytes=sizes), (Context(steps, iterations),))


FINE = job(Acquire(("t",)), Run(Fixed(5)), Yield())
WRONG: list[tuple[tuple[Group, ...], tuple[JobProgram, ...], str]] = [
    ((), (FINE,), "groups: there is none"),
    (G, (), "jobs: there is none"),
    ((*G, Group("t")), (FINE,), "groups[2].name: 't' is there twice"),
    (G, (FINE, FINE), "jobs[1].name: 'a' is also jobs[0]"),
    (G, (job(Acquire(("x",)), Yield()),), "jobs[0].steps[0]: unknown group 'x', must be one of t, s"),
    (G, (job(Acquire(("t",)), Yield(("x",))),), "jobs[0].steps[1]: unknown group 'x'"),
    (G, (job(Acquire(()), Yield()),), "jobs[0].steps[0]: acquire of no group"),
    (G, (job(Yield()),), "jobs[0].steps[0]: yield without acquire"),
    (G, (job(Acquire(("t",)), Yield(("s",)), Yield()),), "jobs[0].steps[1]: yield of 's', which is not held"),
    (G, (job(Acquire(("t",)), Run(Fixed(1))),), "jobs[0].steps[0]: 't' is acquired and never yielded"),
    (G, (job(Acquire(("t", "t")), Yield()),), "jobs[0].steps[0]: acquire of 't', which is already held"),
    (G, (job(Acquire(("t",)), Acquire(("t",), nested=True), Yield()),), "jobs[0].steps[1]: acquire of 't', which"),
    (G, (job(Acquire(("t",)), Acquire(("s",)), Yield()),), "jobs[0].steps[1]: acquire of 's' while holding t, say"),
    (G, (job(Acquire(("t",), nested=True), Yield()),), "jobs[0].steps[0]: nested acquire of 't' while nothing"),
    (G, (job(Acquire(("t",)), Run(Fixed(-3)), Yield()),), "jobs[0].steps[1]: us = -3, must be"),
    (G, (job(Acquire(("t",), estimate_us=-1), Yield()),), "jobs[0].steps[0]: estimate_us = -1"),
    (G, (job(Run(Fixed(1))),), "jobs[0].steps: nothing is acquired"),
    (G, (job(Acquire(("t",)), Yield(), iterations=0),), "jobs[0].iterations: 0, must be >= 1"),
    (G, (job(Acquire(("t",)), Yield(), t=101),), "jobs[0].steps[0]: acquire of 't' can never fit, job 'a' needs 101"),
    (G, (job(Acquire(("t",)), Yield(), x=1),), "jobs[0].state_bytes: unknown group 'x'"),
    (G, (JobProgram(Job("a"), ()),), "jobs[0].contexts: there is none"),
    (G, (JobProgram(Job("a"), FINE.contexts * 2),), "jobs[0].contexts: names ['', ''], must be distinct"),
    (G, (JobProgram(Job("a"), FINE.contexts, -1),), "jobs[0].arrival_us: -1, must be from 0 to"),
]


@pytest.mark.parametrize(("groups", "jobs", "said"), WRONG, ids=[said for _, _, said in WRONG])
def test_a_wrong_workload_is_refused_in_one_line(
    groups: tuple[Group, ...], jobs: tuple[JobProgram, ...], said: str
) -> None:
    with pytest.raises(Invalid) as caught:
        Workload("w", groups, jobs)
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)


def test_nested_acquires_in_opposite_orders_are_a_cycle() -> None:
    there = job(Acquire(("t",)), Acquire(("s",), nested=True), Yield(), name="a")
    back = job(Acquire(("s",)), Acquire(("t",), nested=True), Yield(), name="b")
    with pytest.raises(Invalid, match=r"jobs\[1\]\.steps\[1\]: nested acquires form a cycle \(.*jobs\[0\]\.steps\[1\]"):
        Workload("w", G, (there, back))
    Workload("w", G, (there,))


def test_nested_acquires_in_opposite_orders_within_one_program_are_a_cycle() -> None:
    there = (Acquire(("t",)), Acquire(("s",), nested=True), Yield())
    back = (Acquire(("s",)), Acquire(("t",), nested=True), Yield())
    with pytest.raises(Invalid, match="cycle"):
        Workload("w", G, (job(*there, *back),))


def test_what_is_acquired_at_once_makes_no_cycle() -> None:
    Workload("w", G, (job(Acquire(("t", "s")), Yield(), Acquire(("s", "t")), Yield()),))


def test_a_recorded_makespan_below_zero_is_refused() -> None:
    with pytest.raises(Invalid, match="recorded_makespan_us: -5, must be >= 0"):
        Workload("w", workload_of_one().groups, workload_of_one().jobs, recorded_makespan_us=-5)


def test_a_recorded_move_below_zero_is_refused() -> None:
    with pytest.raises(Invalid, match=r"costs.moves_us.a\[1\]: -1, must be from 0"):
        RecordedCosts({"a": (1, -1)})


def workload_of_one() -> Workload:
    program = JobProgram(Job("a"), (Context((Acquire(("g",)), Run(Fixed(1)), Yield())),))
    return Workload("w", (Group("g"),), (program,))
