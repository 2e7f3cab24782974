"""The figures of a log, counted by hand on small logs and by another way on random ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sim_strategies import FEWER, workloads
from tsched.commands import Grant, Park, Restore, Revoke
from tsched.events import JobAdded, JobLeft, Parked, PhaseRequested, PhaseYielded, Restored
from tsched.journal import Record
from tsched.model import Group, Job
from tsched.plugins import policy_names
from tsched.sim import Workload, simulate
from tsched.sim.bounds import busy_us
from tsched.sim.tally import tally

G = (Group("g"),)


def log(*entries: tuple[int, object, tuple[object, ...]]) -> list[Record]:
    return [Record(n, now, event, commands) for n, (now, event, commands) in enumerate(entries)]  # type: ignore[arg-type]


def grant(lease: int, job: str, waited: int = 0) -> Grant:
    return Grant(lease, job, lease, job, {"g": lease}, waited_us=waited)


SWITCH = log(
    (0, JobAdded(Job("a")), ()),
    (5, PhaseRequested("a", 1, "a", ("g",)), (grant(1, "a"),)),
    (6, JobAdded(Job("b")), ()),
    (10, PhaseRequested("b", 2, "b", ("g",)), ()),
    (25, PhaseYielded(1), (Park(1, "g", "a", 2, ("0",), 9),)),
    (28, Parked(1, "0"), (Restore(2, "g", "b", 2, ("0",), 9),)),
    (30, Restored(2, "0"), (grant(2, "b", 20),)),
    (40, PhaseYielded(2), ()),
    (40, JobLeft("a"), ()),
    (41, JobLeft("b"), ()),
)


def test_a_switch_is_counted_once_with_the_time_that_somebody_waited_for_it() -> None:
    total = tally(G, SWITCH)
    group = total.groups["g"]
    assert (group.busy_us, list(group.switched_us)) == (30, [5])
    assert (total.first_us, total.last_us) == (5, 40)
    assert list(total.jobs["a"].waits_us) == [0]
    assert list(total.jobs["b"].waits_us) == [20]
    assert (total.jobs["a"].last_yield_us, total.jobs["b"].last_yield_us) == (25, 40)
    assert all(job.done and not job.failed for job in total.jobs.values())


def test_a_switch_before_anybody_waits_costs_nobody_time() -> None:
    late = [record for record in SWITCH if record.seq != 3]
    late[-4] = Record(6, 30, PhaseRequested("b", 2, "b", ("g",)), (grant(2, "b"),))
    assert late[-4].event.job == "b"  # type: ignore[union-attr]
    total = tally(G, late)
    assert list(total.groups["g"].switched_us) == [0]


def test_a_revoked_lease_ends_there_and_its_job_has_failed() -> None:
    records = [*SWITCH[:2], Record(2, 9, JobAdded(Job("b")), (Revoke(1, ("g",), "expired"),)), *SWITCH[-2:-1]]
    total = tally(G, records)
    assert total.groups["g"].busy_us == 4
    assert total.jobs["a"].failed == "expired"


@FEWER
@given(workloads(), st.sampled_from(policy_names()))
def test_groups_are_busy_for_at_least_what_the_programs_need(workload: Workload, policy: str) -> None:
    drawn = workload.draw()
    _, records, result = simulate(drawn, policy)
    total = tally(workload.groups, records)
    needed = busy_us(drawn.jobs)
    for name, group in total.groups.items():
        assert group.busy_us >= needed.get(name, 0)
        assert result.duty[name] == pytest.approx(group.busy_us / (result.makespan_s * 1e6 or 1), abs=1e-9)
        assert 0 <= result.duty[name] <= 1 + 1e-9
    grants = [c for r in records for c in r.commands if isinstance(c, Grant)]
    assert sorted(c.waited_us for c in grants) == sorted(w for job in total.jobs.values() for w in job.waits_us)
    assert result.wait_s.max == max(c.waited_us for c in grants) / 1e6
