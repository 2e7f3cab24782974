"""Recordings in llm-d's format: replayed exactly, and refused in one line where they are wrong."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from tsched.commands import Grant
from tsched.costs import FixedTable
from tsched.errors import Invalid
from tsched.plugins import policy_names
from tsched.sim import llmd, simulate

RECORDED = "traces/verl_sync_2xh100.json"


def acquired(t: float, job: str, pool: str, wait: float = 0, restore: float = 0) -> dict[str, Any]:
    return {"t": t, "kind": "acquired", "job": job, "pool": pool, "wait_ms": wait * 1000, "restore_ms": restore * 1000}


def yielded(t: float, job: str, pool: str) -> dict[str, Any]:
    return {"t": t, "kind": "yielded", "job": job, "pool": pool}


def recording(*events: dict[str, Any]) -> dict[str, Any]:
    return {"source": "here", "timeslice": {"events": list(events)}}


THREE = recording(
    acquired(0, "x", "left"),
    yielded(10, "x", "left"),
    acquired(12, "y", "left", wait=4, restore=1),
    {"t": 13, "kind": "checkpointing", "job": "x", "pool": "left"},
    acquired(13, "x", "middle"),
    yielded(20, "y", "left"),
    acquired(22, "z", "left", wait=8),
    yielded(30, "x", "middle"),
    yielded(31, "z", "left"),
    acquired(33, "y", "right"),
    yielded(40, "y", "right"),
)


def test_any_jobs_and_pools_are_replayed() -> None:
    workload = llmd.workload(THREE, "three.json")
    assert workload.name == "three"
    assert [group.name for group in workload.groups] == ["left", "middle", "right"]
    assert [program.job.name for program in workload.jobs] == ["x", "y", "z"]
    assert [program.arrival_us for program in workload.jobs] == [0, 7_000_000, 14_000_000]
    assert workload.costs == FixedTable(park={"left": 2_000_000})
    assert workload.recorded_makespan_us == 40_000_000
    assert workload.meta == {"source": "here"}
    assert simulate(workload).result.makespan_s == pytest.approx(40, abs=1e-4)


def test_a_recording_that_ends_within_a_turn_is_cut_off_there() -> None:
    workload = llmd.workload(recording(acquired(0, "x", "p"), yielded(5, "x", "p"), acquired(6, "x", "p")), "r")
    assert workload.recorded_makespan_us == 6_000_000


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([], "timeslice.events: missing or empty"),
        ([yielded(1, "x", "p")], "timeslice.events[0]: job 'x' yields pool 'p' without acquire"),
        ([acquired(1, "x", "p"), acquired(2, "x", "p")], "timeslice.events[1]: job 'x' acquires pool 'p', which it"),
        ([acquired(float("nan"), "x", "p")], "timeslice.events[0].t: nan, must be a finite number"),
        ([{**acquired(1, "x", "p"), "t": "1"}], "timeslice.events[0].t: '1', must be"),
        ([acquired(1, "x", "p", wait=-1)], "timeslice.events[0].wait_ms: -1000, must be a finite number"),
        ([acquired(1, "", "p")], "timeslice.events[0].job: '', must be a name"),
        ([{"t": 1, "kind": "Acquired"}], "timeslice.events[0].kind: 'Acquired', must be one of acquired, yielded"),
        ([{"t": 1, "kind": "restoring"}], "timeslice.events: no acquired event"),
        (["x"], "timeslice.events[0].t: None, must be"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(events: list[Any], said: str) -> None:
    with pytest.raises(Invalid) as caught:
        llmd.workload(recording(*events), "r.json")
    assert str(caught.value).startswith(f"r.json: {said}")
    assert "\n" not in str(caught.value)


def test_damaged_and_missing_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text(json.dumps(THREE)[:-30])
    with pytest.raises(Invalid, match=r"r\.json: not JSON"):
        llmd.read_llmd(path)
    with pytest.raises(Invalid, match="cannot be read"):
        llmd.read_llmd(tmp_path / "nowhere.json")


def test_the_recorded_run_is_replayed_within_half_a_percent(shared: Path) -> None:
    workload = llmd.read_llmd(shared / RECORDED)
    _, records, result = simulate(workload, "fifo")
    assert workload.recorded_makespan_us == 12_265_800_000
    assert result.makespan_s * 1e6 == pytest.approx(workload.recorded_makespan_us, rel=0.005)

    waits: dict[tuple[str, tuple[str, ...]], list[int]] = {}
    for record in records:
        for command in record.commands:
            if isinstance(command, Grant):
                waits.setdefault((command.job, tuple(command.tokens)), []).append(command.waited_us)
    turns = llmd.turns(json.loads((shared / RECORDED).read_bytes()))
    errors = []
    for turn in turns:
        simulated = waits[turn.job, turn.groups].pop(0)
        errors.append(abs(simulated - (turn.granted_us - turn.asked_us)))
    assert len(errors) == 42
    assert median(errors) < 2_000_000


def test_every_policy_replays_the_recorded_run(shared: Path) -> None:
    workload = llmd.read_llmd(shared / RECORDED)
    for policy in policy_names():
        assert not any(job.failed for job in simulate(workload, policy).result.jobs.values())
