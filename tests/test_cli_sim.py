"""`tsched sim run` and `trace import`: every kind of input, every kind of output, and everything that can be wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tsched.cli import main
from tsched.plugins import policy_names

SCENARIO = """
name = "two"
[[groups]]
name = "train"
[[groups]]
name = "sample"
[costs]
kind = "table"
default_s = 0.5
[[jobs]]
name = "a"
iterations = 3
steps = [
  { acquire = "sample", phase = "generate" },
  { run = { distribution = "lognormal", median_s = 4, sigma = 0.3 } },
  { yield = "sample" },
  { acquire = "train", phase = "train" },
  { run_s = 2 },
  { yield = "train" },
]
[[jobs]]
name = "b"
iterations = 3
steps = [{ acquire = "train", phase = "train" }, { run_s = 3 }, { yield = "train" }, { run_s = 1 }]
"""
RECORDED = {
    "timeslice": {
        "events": [
            {"t": when, "kind": kind, "job": job, "pool": "gpu", "wait_ms": 0, "restore_ms": 0}
            for turn in range(8)
            for job, start in (("A", 0.0), ("B", 6.0))
            for kind, when in (("acquired", turn * 12 + start), ("yielded", turn * 12 + start + 5))
        ]
    }
}
KEYS = ["workload", "seeds", "lower_bound_s", "recorded_makespan_s", "baselines", "policies"]
POLICY_KEYS = [
    "policy",
    "makespan_s",
    "gpu_hours",
    "duty",
    "wait_s",
    "switches",
    "switch_s",
    "switch_median_s",
    "gap_to_lower_bound",
    "error_vs_recorded",
    "jobs",
]


def tsched(*args: object) -> Result:
    return CliRunner().invoke(main, [str(arg) for arg in args])


def objects(outcome: Result) -> list[dict[str, Any]]:
    assert outcome.exit_code == 0, outcome.output
    return [json.loads(line) for line in outcome.stdout.splitlines()]


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "two.toml"
    path.write_text(SCENARIO)
    return path


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path = tmp_path / "recorded.json"
    path.write_text(json.dumps(RECORDED))
    return path


def test_json_is_one_object_of_stable_keys_a_file(scenario: Path, recording: Path) -> None:
    first, second = objects(tsched("sim", "run", scenario, recording, "--json"))
    assert list(first) == KEYS
    assert list(first["baselines"]) == ["dedicated", "serial"]
    assert [entry["policy"] for entry in first["policies"]] == policy_names()
    for entry in first["policies"]:
        assert list(entry) == POLICY_KEYS
        assert set(entry["wait_s"]) == {"median", "p95", "max"}
        assert set(entry["duty"]) == {"train", "sample"}
        assert set(entry["jobs"]["a"]) == {"finish_s", "slowdown_vs_dedicated", "wait_s"}
        assert entry["makespan_s"] >= first["lower_bound_s"] > 0
        assert entry["error_vs_recorded"] is None
    assert (first["workload"], first["seeds"], first["recorded_makespan_s"]) == ("two", 1, None)
    assert second["recorded_makespan_s"] == 95.0
    assert second["policies"][0]["error_vs_recorded"] == pytest.approx(0, abs=0.01)


def test_several_seeds_give_means_and_intervals_of_the_same_shape(scenario: Path) -> None:
    (found,) = objects(tsched("sim", "run", scenario, "--json", "--seeds", 3, "--policy", "fifo"))
    (entry,) = found["policies"]
    assert found["seeds"] == 3
    assert list(entry) == [*POLICY_KEYS, "ci95"]
    assert entry["ci95"]["makespan_s"] > 0
    assert set(entry["ci95"]["wait_s"]) == {"median", "p95", "max"}
    singles = [
        objects(tsched("sim", "run", scenario, "--json", "--seed", seed, "--policy", "fifo"))[0] for seed in range(3)
    ]
    mean = sum(each["policies"][0]["makespan_s"] for each in singles) / 3
    assert entry["makespan_s"] == pytest.approx(mean)


def test_policies_may_have_options(scenario: Path) -> None:
    specs = ["fifo", "fifo?window=4&linger_s=2"]
    (found,) = objects(tsched("sim", "run", scenario, "--json", "--policy", ",".join(specs)))
    assert [entry["policy"] for entry in found["policies"]] == specs


def test_people_get_a_table(scenario: Path) -> None:
    outcome = tsched("sim", "run", scenario)
    assert outcome.exit_code == 0
    assert "two: lower bound" in outcome.stdout
    for name in [*policy_names(), "dedicated", "serial"]:
        assert sum(line.startswith(name + " ") for line in outcome.stdout.splitlines()) == 1
    assert "\x1b" not in outcome.stdout


def test_the_report_holds_a_chart_a_policy(scenario: Path, recording: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.html"
    outcome = tsched("sim", "run", scenario, recording, "--policy", "fifo,round_robin", "--report", target)
    assert outcome.exit_code == 0, outcome.output
    text = target.read_text()
    assert text.count("<canvas ") == 4
    assert "<h2>two</h2>" in text
    assert sorted(each.name for each in tmp_path.iterdir()) == ["out.html", "recorded.json", "two.toml"]


def test_a_written_log_is_read_back_as_the_same_run(scenario: Path, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    (first,) = objects(tsched("sim", "run", scenario, "--policy", "fifo", "--seed", 5, "--log", log, "--json"))
    assert "identical" in tsched("trace", "replay", log).stdout
    (again,) = objects(tsched("sim", "run", log, "--policy", "fifo", "--json"))
    assert again["recorded_makespan_s"] == first["policies"][0]["makespan_s"]
    assert again["policies"][0]["error_vs_recorded"] == 0
    assert tsched("trace", "export", log, "--to", "perfetto").exit_code == 0


def test_an_imported_run_is_the_same_workload(recording: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    outcome = tsched("trace", "import", recording, "-o", trace)
    assert outcome.stdout == f"{trace}: 2 jobs on gpu\n"
    (direct,) = objects(tsched("sim", "run", recording, "--json"))
    (imported,) = objects(tsched("sim", "run", trace, "--json"))
    assert imported == direct


def test_a_fit_predicts_with_an_interval(recording: Path) -> None:
    (found,) = objects(tsched("sim", "run", recording, "--fit", 0.5, "--policy", "fifo", "--json"))
    (entry,) = found["policies"]
    low, high = entry["makespan_interval_s"]
    assert low <= entry["makespan_s"] <= high
    assert abs(entry["error_vs_recorded"]) < 0.05
    assert "with 95 % probability" in tsched("sim", "run", recording, "--fit", 0.5).stdout


def test_a_log_that_is_cut_short_is_used_with_one_warning(scenario: Path, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    tsched("sim", "run", scenario, "--policy", "fifo", "--log", log)
    log.write_bytes(log.read_bytes()[:-9])
    outcome = tsched("sim", "run", log, "--policy", "fifo", "--json")
    assert outcome.exit_code == 0
    assert outcome.stderr.startswith("warning: ")
    assert outcome.stderr.count("\n") == 1


def test_jobs_that_faults_ended_are_named(tmp_path: Path) -> None:
    path = tmp_path / "faulty.toml"
    path.write_text(SCENARIO.replace("[costs]", "[faults]\nlose = 1.0\n[costs]"))
    outcome = tsched("sim", "run", path, "--policy", "fifo")
    assert outcome.exit_code == 0
    assert "warning: two, under fifo, seed 0: job 'b' did not run to its end" in outcome.stderr


# ---------------------------------------------------------------------------------------------------- bad input

ONE_JOB = """
[[groups]]
name = "g"
capacity_gb = 10
[[groups]]
name = "h"
[[jobs]]
name = "a"
"""
CYCLE = "".join(
    f"""
[[jobs]]
name = "{name}"
steps = [{{ acquire = "{one}" }}, {{ acquire = "{two}", nested = true }}, {{ yield = ["{one}", "{two}"] }}]
"""
    for name, one, two in (("x", "g", "h"), ("y", "h", "g"))
)
TURN = 'steps = [{ acquire = "g" }, { run_s = 1 }, { yield = "g" }]\n'
LOG_HEADER = '{"type":"header","groups":[],"policy":"fifo","meta":{},"format":"tsched-log","version":1}\n'
WORKLOAD_HEADER = '{"format":"tsched-workload","version":1,"name":"w","groups":[],"costs":{"kind":"table"}'

BAD = {
    "unknown key": (ONE_JOB + TURN + "colour = 'red'\n", ["jobs[0].colour", "unknown key", "'red'"]),
    "unknown group": (ONE_JOB + 'steps = [{ acquire = "z" }]\n', ["jobs[0].steps[0]", "'z'", "g, h"]),
    "negative duration": (ONE_JOB + TURN.replace("1", "-1"), ["jobs[0].steps[1].run_s", "-1", "greater than or equal"]),
    "NaN duration": (ONE_JOB + TURN.replace("1", "nan"), ["jobs[0].steps[1].run_s", "nan", "finite"]),
    "yield without acquire": (ONE_JOB + 'steps = [{ yield = "g" }]\n', ["jobs[0].steps[0]", "'g'", "acquire"]),
    "never yielded": (ONE_JOB + 'steps = [{ acquire = "g" }]\n', ["jobs[0].steps[0]", "'g'", "yield"]),
    "never fits": (ONE_JOB + "state_gb = { g = 11 }\n" + TURN, ["jobs[0].steps[0]", "never fit", "11000000000"]),
    "cycle": (ONE_JOB + TURN + CYCLE, ["jobs[2].steps[1]", "cycle", "g", "h"]),
    "two jobs of one name": (ONE_JOB + TURN + '[[jobs]]\nname = "a"\n' + TURN, ["jobs[1].name", "'a'", "distinct"]),
    "no jobs": ('[[groups]]\nname = "g"\n', ["jobs", "at least one"]),
    "no groups": ('[[jobs]]\nname = "a"\n' + TURN, ["groups", "at least one"]),
    "no TOML": ("[[groups\n", ["TOML", "line 1"]),
    "nothing": ("", ["groups", "at least one"]),
    "wrong type": (ONE_JOB + "iterations = 'many'\n" + TURN, ["jobs[0].iterations", "many", "integer"]),
    "JSON of another kind": ('{"a": 1}', ["format", "timeslice"]),
    "truncated JSON": ('{"timeslice": {"events": [', ["JSON"]),
    "recording without events": ('{"timeslice": {"events": []}}', ["timeslice.events", "empty"]),
    "recording with a NaN": (json.dumps({"timeslice": {"events": [{"t": "x"}]}}), ["timeslice.events[0].t", "'x'"]),
    "newer log": (LOG_HEADER.replace("1}", "99}"), ["line 1", "version 99", "newer"]),
    "newer workload": ('{"format":"tsched-workload","version":99}\n', ["line 1", "version 99", "upgrade"]),
    "truncated workload": (WORKLOAD_HEADER, ["JSON"]),
    "log with a damaged line": (LOG_HEADER + '{"type":"rec\n{}\n', ["line 2"]),
    "log without a turn": (LOG_HEADER, ["turn"]),
}


@pytest.mark.parametrize(("content", "words"), BAD.values(), ids=BAD.keys())
def test_bad_input_ends_with_2_and_one_line_and_nothing_is_written(
    content: str, words: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "input"
    path.write_text(content)
    outcome = tsched("sim", "run", path, "--report", tmp_path / "out.html", "--json")
    assert outcome.exit_code == 2, outcome.output
    assert isinstance(outcome.exception, SystemExit)
    assert outcome.stdout == ""
    assert outcome.stderr.startswith(f"error: {path}")
    assert outcome.stderr.count("\n") == 1
    assert all(word in outcome.stderr for word in words), outcome.stderr
    assert [each.name for each in tmp_path.iterdir()] == ["input"]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--policy", "nope"], ["'nope'", "fifo"]),
        (["--policy", ""], ["at least one"]),
        (["--policy", "fifo?window=99"], ["window", "1 to 8", "99"]),
        (["--seeds", "0"], ["--seeds", "0"]),
        (["--seeds", "many"], ["--seeds", "many"]),
        (["--fit", "0.5"], ["scenario", "fit"]),
        (["--fit", "nan"], ["fit"]),
        (["--log", "x.jsonl"], ["--log", "--policy"]),
        (["--report", "no/such/out.html"], ["no/such"]),
        (["missing.toml"], ["missing.toml", "cannot be read"]),
        (["."], ["cannot be read"]),
    ],
)
def test_bad_options_end_with_2_and_one_line(args: list[str], words: list[str], scenario: Path) -> None:
    outcome = tsched("sim", "run", scenario, *args)
    assert outcome.exit_code == 2, outcome.output
    assert outcome.stdout == ""
    assert outcome.stderr.count("\n") == 1
    assert all(word in outcome.stderr for word in words), outcome.stderr


@pytest.mark.parametrize("share", [0, -1, 1.5, "nan"])
def test_a_share_to_learn_from_is_above_0_and_at_most_1(share: object, recording: Path, tmp_path: Path) -> None:
    for args in (["sim", "run", recording], ["trace", "import", recording, "-o", tmp_path / "out"]):
        outcome = tsched(*args, f"--fit={share}")
        assert outcome.exit_code == 2
        assert "above 0 and at most 1" in outcome.stderr
    assert not (tmp_path / "out").exists()
