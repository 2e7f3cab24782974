"""The simulator: definite, faithful to the programs, and plain about what can never end."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sim_strategies import FEWER, workloads
from tsched.commands import Grant
from tsched.costs import FixedTable
from tsched.errors import Deadlock, UnknownPlugin
from tsched.events import JobAdded, JobLeft, PhaseRequested, PhaseYielded, Woke
from tsched.faults import FaultRates
from tsched.journal import MemoryJournal
from tsched.model import Group, Job
from tsched.plugins import policy_names
from tsched.policies.fifo import Fifo
from tsched.sim import Acquire, Context, Fixed, JobProgram, Run, Workload, Yield, simulate
from tsched.sim.draw import AcquireOp

POLICIES = policy_names()
FREE = FixedTable()


def alternating(jobs: int = 2, iterations: int = 3, costs: FixedTable = FREE) -> Workload:
    """Jobs that take 10 on g and 5 elsewhere."""
    context = Context((Acquire(("g",), "train", 10), Run(Fixed(10)), Yield(), Run(Fixed(5))), iterations)
    programs = tuple(JobProgram(Job(f"j{index}"), (context,)) for index in range(jobs))
    return Workload("alternating", (Group("g"),), programs, costs)


@FEWER
@given(workloads(), st.sampled_from(POLICIES))
def test_every_job_does_all_of_its_program_and_leaves(workload: Workload, policy: str) -> None:
    header, records, result = simulate(workload, policy)
    drawn = workload.draw()
    events = [record.event for record in records]
    for job in drawn.jobs:
        for context in job.contexts:
            asked = [e for e in events if isinstance(e, PhaseRequested) and e.client == context.client]
            acquires = [op for op in context.ops if isinstance(op, AcquireOp)] * context.iterations
            assert [(e.groups, e.phase) for e in asked] == [(op.groups, op.phase) for op in acquires]
            assert [e.request for e in asked] == list(range(1, len(asked) + 1))
    assert sum(isinstance(e, JobAdded) for e in events) == len(drawn.jobs)
    assert sum(isinstance(e, JobLeft) for e in events) == len(drawn.jobs)
    assert not any(job.failed for job in result.jobs.values())
    assert header.policy == policy
    assert [record.seq for record in records] == list(range(len(records)))
    assert all(one.now <= other.now for one, other in pairwise(records))


@FEWER
@given(workloads(), st.sampled_from(POLICIES))
def test_the_same_run_twice_gives_the_same_log(workload: Workload, policy: str) -> None:
    assert simulate(workload, policy) == simulate(workload, policy)


@FEWER
@given(workloads(), st.sampled_from(POLICIES))
def test_nobody_is_ever_beside_another_on_a_group(workload: Workload, policy: str) -> None:
    holder: dict[str, int] = {}
    for record in simulate(workload, policy).records:
        if isinstance(record.event, PhaseYielded):
            gone = record.event.groups or tuple(g for g, lease in holder.items() if lease == record.event.lease)
            for group in gone:
                assert holder.pop(group) == record.event.lease
        for command in record.commands:
            if isinstance(command, Grant):
                assert not set(command.tokens) & set(holder)
                holder.update(dict.fromkeys(command.tokens, command.lease))


@FEWER
@given(workloads(most_jobs=1, contexts=1))
def test_a_job_alone_never_waits(workload: Workload) -> None:
    result = simulate(workload).result
    assert result.wait_s.max == 0
    assert result.switches == 0
    assert result.makespan_s == pytest.approx(result.lower_bound_s)


def test_two_jobs_take_turns_and_pay_for_each_switch() -> None:
    result = simulate(alternating(costs=FixedTable({"g": 3}, {"g": 1}))).result
    assert result.switches == 5
    # a first turn, a first switch that restores nothing (but a move takes a microsecond), then four full ones
    assert result.makespan_s == pytest.approx((6 * 10 + 5 * 3 + 4 * 1) / 1e6)
    assert result.switch_s == pytest.approx((5 * 3 + 4 * 1) / 1e6)


def test_arrivals_and_leaves_are_events() -> None:
    steps = (Acquire(("g",)), Run(Fixed(10)), Yield())
    jobs = tuple(JobProgram(Job(name), (Context(steps),), at) for name, at in (("a", 0), ("b", 100)))
    records = simulate(Workload("w", (Group("g"),), jobs)).records
    told = [(record.now, type(record.event).__name__) for record in records if not isinstance(record.event, Woke)]
    one = [(0, "JobAdded"), (0, "PhaseRequested"), (10, "PhaseYielded"), (10, "JobLeft")]
    assert [entry for entry in told if entry[1] != "Discarded"] == one + [(100 + when, what) for when, what in one]


def test_the_journal_is_told_what_is_returned() -> None:
    journal = MemoryJournal()
    header, records, _ = simulate(alternating(), "fair_share", journal=journal)
    assert journal.header == header
    assert journal.records == records


def test_a_run_that_keeps_no_records_comes_to_the_same() -> None:
    kept, thrown = simulate(alternating()), simulate(alternating(), keep=False)
    assert thrown.records == []
    assert thrown.result == kept.result


def test_a_policy_may_be_handed_over_made() -> None:
    assert simulate(alternating(), Fifo()).result == simulate(alternating(), "fifo").result


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(UnknownPlugin):
        simulate(alternating(), "no_such_policy")


def test_remaining_work_counts_down_to_the_last_turn() -> None:
    records = simulate(alternating(jobs=1)).records
    asked = [record.event for record in records if isinstance(record.event, PhaseRequested)]
    assert [event.remaining_us for event in asked] == [45, 30, 15]


def test_a_nested_acquire_names_the_lease_that_it_is_within() -> None:
    steps = (Acquire(("g",)), Run(Fixed(5)), Acquire(("h",), nested=True), Run(Fixed(5)), Yield())
    groups = (Group("g"), Group("h"))
    records = simulate(Workload("w", groups, (JobProgram(Job("a"), (Context(steps),)),))).records
    asked = [record.event for record in records if isinstance(record.event, PhaseRequested)]
    assert [event.within for event in asked] == [None, 1]


def faulty(rates: FaultRates) -> Workload:
    context = Context((Acquire(("g",)), Run(Fixed(1000)), Yield(), Run(Fixed(500))), 20)
    jobs = tuple(JobProgram(Job(f"j{index}"), (context,)) for index in range(3))
    return Workload("faulty", (Group("g", move_timeout_us=5000),), jobs, FixedTable(default_us=100), rates)


@pytest.mark.parametrize("fault", ["fail", "hang", "lie", "late", "lose"])
def test_faults_slow_down_or_end_their_own_job_only(fault: str) -> None:
    for seed in range(5):
        result = simulate(faulty(FaultRates(**{fault: 0.05})), seed=seed).result
        assert set(result.jobs) == {"j0", "j1", "j2"}
        if fault == "late":
            assert not any(job.failed for job in result.jobs.values())


def test_a_lost_job_is_reported_and_does_nothing_more() -> None:
    _, records, result = simulate(faulty(FaultRates(lose=1.0)))
    failed = {name for name, job in result.jobs.items() if job.failed}
    assert failed
    for name in failed:
        last = max(r.seq for r in records if isinstance(r.event, PhaseRequested) and r.event.job == name)
        lost = min(r.seq for r in records if name in str(r.event) and "JobLost" in type(r.event).__name__)
        assert last < lost


def test_a_group_that_never_comes_free_is_a_deadlock_that_names_who_waits() -> None:
    # Every discard hangs: a job that has left is never seen to be gone.
    context = Context((Acquire(("g",)), Run(Fixed(10)), Yield()))
    jobs = tuple(JobProgram(Job(name), (context,)) for name in "ab")
    workload = Workload("w", (Group("g", move_timeout_us=1000),), jobs, faults=FaultRates(hang=1.0))
    with pytest.raises(Deadlock, match="'b' waits for g"):
        simulate(workload)


def test_a_phase_beyond_its_quantum_is_suspended_and_goes_on_where_it_was() -> None:
    long = Context((Acquire(("g",), "train"), Run(Fixed(100)), Yield()))
    short = Context((Run(Fixed(5)), Acquire(("g",), "train"), Run(Fixed(10)), Yield()))
    group = Group("g", suspendable=True, max_phase_us=20)
    jobs = (JobProgram(Job("long"), (long,)), JobProgram(Job("short"), (short,)))
    _, records, result = simulate(Workload("w", (group,), jobs))
    assert "Suspend" in {type(command).__name__ for record in records for command in record.commands}
    assert result.jobs["short"].finish_s < result.jobs["long"].finish_s
    assert result.makespan_s == pytest.approx(110e-6, abs=10e-6)
    assert sum(share * result.makespan_s for share in result.duty.values()) == pytest.approx(110e-6)
