"""Our own logs as workloads: under the same policy the exact replay decides as the log did."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sim_strategies import FEWER, workloads
from tsched.errors import Invalid
from tsched.events import PhaseRequested, PhaseYielded
from tsched.faults import FaultRates
from tsched.journal import Header, JsonlJournal, Record
from tsched.model import Group, Job
from tsched.plugins import policy_names
from tsched.sim import Acquire, Context, Fixed, JobProgram, Run, Workload, Yield, replay, simulate
from tsched.sim.load import load_workload


def turns_of(records: list[Record]) -> list[tuple[int, object]]:
    """When who asked and yielded: client names and the estimates that go with them may differ."""
    start = next(record.now for record in records if isinstance(record.event, PhaseRequested))
    found: list[tuple[int, object]] = []
    for record in records:
        if isinstance(record.event, PhaseRequested):
            found.append((record.now - start, (record.event.job, record.event.groups)))
        elif isinstance(record.event, PhaseYielded):
            found.append((record.now - start, record.event.lease))
    return found


@FEWER
@given(workloads(fixed=True), st.sampled_from([name for name in policy_names() if name != "longest_remaining_first"]))
def test_a_replay_of_a_log_repeats_it(workload: Workload, policy: str) -> None:
    header, records, result = simulate(workload, policy)
    again = replay.workload(header, records, "log")
    assert again.recorded_makespan_us == pytest.approx(result.makespan_s * 1e6)
    _, repeated, once_more = simulate(again, policy)
    if all(len(program.contexts) == 1 for program in workload.jobs):
        assert turns_of(repeated) == turns_of(records)
        assert once_more.makespan_s == result.makespan_s
    assert once_more.makespan_s == pytest.approx(result.makespan_s, rel=0.5)


@FEWER
@given(workloads(), st.integers(0, 3))
def test_any_log_can_be_replayed_under_another_policy(workload: Workload, seed: int) -> None:
    header, records, _ = simulate(workload, "fifo", seed)
    again = replay.workload(header, records, "log")
    for policy in policy_names():
        result = simulate(again, policy).result
        assert not any(job.failed for job in result.jobs.values())


def test_a_log_of_a_faulty_run_can_be_replayed() -> None:
    context = Context((Acquire(("g",)), Run(Fixed(1000)), Yield(), Run(Fixed(500))), 10)
    jobs = tuple(JobProgram(Job(f"j{index}"), (context,)) for index in range(3))
    rates = FaultRates(fail=0.05, lose=0.02, late=0.1)
    for seed in range(10):
        workload = Workload("w", (Group("g", move_timeout_us=900),), jobs, faults=rates, seed=seed)
        header, records, _ = simulate(workload)
        simulate(replay.workload(header, records, "log"))


def test_a_suspended_turn_is_replayed_without_its_pause() -> None:
    long = Context((Acquire(("g",), "train"), Run(Fixed(100)), Yield()))
    short = Context((Run(Fixed(5)), Acquire(("g",), "train"), Run(Fixed(10)), Yield()))
    jobs = (JobProgram(Job("long"), (long,)), JobProgram(Job("short"), (short,)))
    workload = Workload("w", (Group("g", suspendable=True, max_phase_us=20),), jobs)
    header, records, _ = simulate(workload)
    again = replay.workload(header, records, "log")
    lengths = {
        program.job.name: [step.duration.expected_us() for step in program.contexts[0].steps if isinstance(step, Run)]
        for program in again.jobs
    }
    assert lengths == {"long": [100], "short": [10]}


def test_a_log_on_disk_is_loaded_as_a_workload(tmp_path: Path) -> None:
    context = Context((Acquire(("g",)), Run(Fixed(1000)), Yield()), 3)
    workload = Workload("w", (Group("g"),), (JobProgram(Job("a"), (context,)), JobProgram(Job("b"), (context,))))
    journal = JsonlJournal(tmp_path / "log.jsonl")
    result = simulate(workload, journal=journal).result
    journal.close()
    loaded = load_workload(tmp_path / "log.jsonl")
    assert loaded.name == "w"
    assert simulate(loaded).result.makespan_s == result.makespan_s


def test_a_log_without_turns_is_refused() -> None:
    with pytest.raises(Invalid, match="log: no turn was granted"):
        replay.workload(Header((Group("g"),)), [], "log")
