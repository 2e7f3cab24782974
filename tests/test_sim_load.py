"""Whatever describes a workload is told apart by its content."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tsched.errors import Invalid
from tsched.journal import SqliteJournal
from tsched.model import Group, Job
from tsched.sim import Acquire, Context, Fixed, JobProgram, Run, Workload, Yield, simulate
from tsched.sim.jsonl import write_jsonl
from tsched.sim.load import load_workload

SMALL = Workload("w", (Group("g"),), (JobProgram(Job("a"), (Context((Acquire(("g",)), Run(Fixed(5)), Yield())),)),))


def test_a_scenario_a_trace_a_log_and_a_recording_are_told_apart(tmp_path: Path) -> None:
    scenario = tmp_path / "scenario"
    scenario.write_text(
        '[[groups]]\nname = "g"\n[[jobs]]\nname = "a"\n'
        'steps = [{ acquire = "g" }, { run_s = 0.000005 }, { yield = "g" }]\n'
    )
    write_jsonl(SMALL, tmp_path / "trace")
    journal = SqliteJournal(tmp_path / "log")
    simulate(SMALL, journal=journal)
    journal.close()
    recording = tmp_path / "recording"
    events = [
        {"t": 0, "kind": "acquired", "job": "a", "pool": "g"},
        {"t": 0.000005, "kind": "yielded", "job": "a", "pool": "g"},
    ]
    recording.write_text(json.dumps({"timeslice": {"events": events}}, indent=1))
    for name in ("scenario", "trace", "log", "recording"):
        assert simulate(load_workload(tmp_path / name)).result.makespan_s == 5e-6, name


@pytest.mark.parametrize("text", ["{}", '{"a": 1}', '{"format": "other"}', '{"timeslice": ', "{"])
def test_json_of_another_sort_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "odd.json"
    path.write_text(text)
    with pytest.raises(Invalid, match=r"odd\.json: is JSON of an unknown sort"):
        load_workload(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="nowhere: cannot be read"):
        load_workload(tmp_path / "nowhere")
