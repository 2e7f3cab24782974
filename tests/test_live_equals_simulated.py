"""The promise that makes the simulator worth believing: live and simulated runs take the same decisions."""

from __future__ import annotations

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tsched.costs import Bandwidth, Costs, FixedTable, Samples
from tsched.faults import FaultRates
from tsched.journal import Record
from tsched.model import Group, Job
from tsched.plugins import policy_names
from tsched.sim.durations import Exponential, Fixed
from tsched.sim.program import Acquire, Context, JobProgram, Run, Step, Yield
from tsched.sim.simulator import simulate
from tsched.sim.workload import Workload
from tsched.testing.play import play

NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
POLICIES = [*policy_names(), "fifo?window=4", "fair_share?linger_s=0.00001", "shortest_phase_first?window=2&linger_s=1"]

# Small whole numbers: as many events as possible meet at the same microsecond.
LENGTHS = st.integers(0, 12)
GROUP_NAMES = ("g0", "g1", "g2")
COSTS: tuple[Costs, ...] = (
    FixedTable(default_us=3),
    FixedTable(),
    Bandwidth(bytes_per_s=1_000_000, latency_us=1),
    Samples(park={"g0": (1, 4, 9)}, restore={"g0": (2, 6)}, default_us=5),
)


@st.composite
def groups(draw: st.DrawFn) -> tuple[Group, ...]:
    def group(name: str) -> Group:
        limit = draw(st.sampled_from([None, None, 5, 9]))
        return Group(
            name,
            capacity_bytes=draw(st.sampled_from([None, 6, 8, 12])),
            nodes=("0", "1") if draw(st.booleans()) else ("0",),
            max_hold_us=draw(st.sampled_from([None, None, None, 25])),
            lease_ttl_us=draw(st.sampled_from([None, None, None, 30])),
            max_phase_us=limit,
            suspendable=limit is not None and draw(st.booleans()),
            prefetch=draw(st.booleans()),
            move_timeout_us=draw(st.sampled_from([7, 20, 1000])),
            retries=draw(st.integers(0, 2)),
        )

    return tuple(group(name) for name in GROUP_NAMES[: draw(st.integers(1, 3))])


@st.composite
def steps(draw: st.DrawFn, names: tuple[str, ...]) -> tuple[Step, ...]:
    """Turns on one group, on several at once with a partial yield, and one within another in a fixed order."""
    made: list[Step] = []
    for _ in range(draw(st.integers(1, 3))):
        made.append(Run(Fixed(draw(LENGTHS))))
        shape = draw(st.sampled_from(["one", "several", "nested"])) if len(names) > 1 else "one"
        chosen = tuple(sorted(draw(st.sets(st.sampled_from(names), min_size=2, max_size=3)))) if shape != "one" else ()
        estimate = draw(st.none() | st.integers(0, 15))
        phase = draw(st.sampled_from(["", "train", "generate"]))
        if shape == "one":
            made += [Acquire((draw(st.sampled_from(names)),), phase, estimate), Run(Fixed(draw(LENGTHS))), Yield()]
        elif shape == "several":
            made += [Acquire(chosen, phase, estimate), Run(Fixed(draw(LENGTHS))), Yield((chosen[0],))]
            made += [Run(Exponential(draw(LENGTHS))), Yield()]
        else:
            made += [Acquire((chosen[0],), phase, estimate), Run(Fixed(draw(LENGTHS)))]
            made += [Acquire(chosen[1:], phase, estimate, nested=True), Run(Fixed(draw(LENGTHS)))]
            made += [Yield(chosen[1:]), Run(Fixed(draw(LENGTHS))), Yield()]
    return tuple(made)


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    pools = draw(groups())
    names = tuple(group.name for group in pools)

    def program(name: str) -> JobProgram:
        sizes = draw(st.fixed_dictionaries({}, optional={group: st.integers(0, 4) for group in names}))
        job = Job(
            name,
            owner=draw(st.sampled_from(["", "x", "y"])),
            weight=draw(st.sampled_from([1.0, 2.5])),
            state_bytes=sizes,
            turn_bytes={group: draw(st.integers(0, 2)) for group in sizes},
        )
        contexts = tuple(
            Context(draw(steps(names)), draw(st.integers(1, 3)), str(index)) for index in range(draw(st.integers(1, 2)))
        )
        return JobProgram(job, contexts, draw(st.sampled_from([0, 0, 3, 10])))

    rates = st.sampled_from([0.0, 0.05, 0.15])
    return Workload(
        "drawn",
        pools,
        tuple(program(f"j{index}") for index in range(draw(st.integers(1, 4)))),
        costs=draw(st.sampled_from(COSTS)),
        faults=FaultRates(*(draw(rates) for _ in range(5))) if draw(st.booleans()) else FaultRates(),
        seed=draw(st.integers(0, 1000)),
    )


def first_difference(live: list[Record], simulated: list[Record]) -> str:
    for mine, other in zip(live, simulated, strict=False):
        if mine != other:
            return f"live:      {mine}\nsimulated: {other}"
    return f"live has {len(live)} records, simulated {len(simulated)}"


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=1000 if NIGHTLY else 100)
@given(workload=workloads())
def test_live_and_simulated_runs_of_a_workload_write_the_same_log(policy: str, workload: Workload) -> None:
    simulated = simulate(workload, policy).records
    live = play(workload, policy).records
    assert live == simulated, first_difference(live, simulated)
