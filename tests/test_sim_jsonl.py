"""Traces of programs are read back as they were written, and damage is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from tests.sim_strategies import FEWER, workloads
from tsched.errors import Invalid
from tsched.model import Group, Job
from tsched.sim import Acquire, Context, Fixed, JobProgram, Run, Workload, Yield
from tsched.sim.jsonl import read_jsonl, write_jsonl

SMALL = Workload(
    "w", (Group("g"),), (JobProgram(Job("a"), (Context((Acquire(("g",)), Run(Fixed(5)), Yield())),)),), meta={"a": "b"}
)


@settings(FEWER, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(workload=workloads())
def test_what_is_written_is_read_back_equal(tmp_path: Path, workload: Workload) -> None:
    path = tmp_path / "trace.jsonl"
    write_jsonl(workload, path)
    assert read_jsonl(path) == workload


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"version":1', '"version":2', "line 1: version 2, this release reads up to 1"),
        ("tsched-workload", "something", "line 1: format 'something', must be 'tsched-workload'"),
        ('"us":5', '"us":-5', "jobs[0].steps[1]: us = -5"),
        ('"us":5', '"ms":5', "line 2: "),
        ('"iterations"', '"iteration"', "line 2: "),
    ],
)
def test_what_is_wrong_is_said_in_one_line(tmp_path: Path, old: str, new: str, said: str) -> None:
    path = tmp_path / "trace.jsonl"
    write_jsonl(SMALL, path)
    text = path.read_text().replace('"contexts":[{', '"contexts":[{"iterations":1,')
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(Invalid) as caught:
        read_jsonl(path)
    assert str(caught.value).startswith(f"{path}: {said}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("keep", [0, 40, -20])
def test_a_truncated_trace_is_refused(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "trace.jsonl"
    write_jsonl(SMALL, path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(Invalid, match=r"trace\.jsonl: line"):
        read_jsonl(path)


def test_a_trace_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="cannot be read"):
        read_jsonl(tmp_path / "nowhere.jsonl")
