"""Scenario files are read as written, and what is wrong is said in one line with file, place and value."""

from __future__ import annotations

from pathlib import Path

import pytest

from tsched.costs import Bandwidth, FixedTable, Samples
from tsched.errors import Invalid
from tsched.faults import FaultRates
from tsched.model import Group, Job
from tsched.sim import (
    Acquire,
    Context,
    Exponential,
    Fixed,
    JobProgram,
    Lognormal,
    Normal,
    Recorded,
    Run,
    Uniform,
    Yield,
)
from tsched.sim.toml import read_toml

TEXT = """
name = "small"
seed = 3
recorded_makespan_s = 12.5

[meta]
why = "a test"

[[groups]]
name = "trainers"
capacity_gb = 80
nodes = ["n0", "n1"]
lease_ttl_s = 30
prefetch = false

[[groups]]
name = "samplers"

[costs]
kind = "table"
park_s = { trainers = 1.5 }
default_s = 0.25

[faults]
fail = 0.1

[[jobs]]
name = "a"
owner = "x"
weight = 2
arrival_s = 4
iterations = 2
state_gb = { trainers = 27 }
turn_gb = { trainers = 0.5 }
steps = [
  { acquire = "trainers", phase = "train", estimate_s = 4 },
  { run = { distribution = "lognormal", median_s = 3.8, sigma = 0.25 } },
  { acquire = ["samplers"], phase = "sync", nested = true },
  { run_s = 1 },
  { yield = "trainers" },
  { run = { distribution = "uniform", low_s = 1, high_s = 2 } },
  { yield = [] },
  { recorded_s = [3.2, 4] },
]

[[jobs]]
name = "b"

[[jobs.contexts]]
name = "trainer"
steps = [
  { acquire = "trainers" },
  { run = { distribution = "normal", mean_s = 5, sd_s = 1 } },
  { yield = "trainers" },
]

[[jobs.contexts]]
name = "sampler"
iterations = 3
steps = [
  { acquire = "samplers" },
  { run = { distribution = "exponential", mean_s = 5 } },
  { yield = "samplers" },
]
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "small.toml"
    path.write_text(text)
    return path


def test_a_scenario_is_read_as_written(tmp_path: Path) -> None:
    workload = read_toml(write(tmp_path, TEXT))
    assert (workload.name, workload.seed, workload.recorded_makespan_us) == ("small", 3, 12_500_000)
    assert workload.meta == {"why": "a test"}
    assert workload.faults == FaultRates(fail=0.1)
    assert workload.costs == FixedTable({"trainers": 1_500_000}, {}, 250_000)
    trainers = Group("trainers", 80_000_000_000, ("n0", "n1"), lease_ttl_us=30_000_000, prefetch=False)
    assert workload.groups == (trainers, Group("samplers"))
    a, b = workload.jobs
    assert a.job == Job("a", "x", 2.0, {"trainers": 27_000_000_000}, {"trainers": 500_000_000})
    steps = (
        Acquire(("trainers",), "train", 4_000_000),
        Run(Lognormal(3_800_000, 0.25)),
        Acquire(("samplers",), "sync", nested=True),
        Run(Fixed(1_000_000)),
        Yield(("trainers",)),
        Run(Uniform(1_000_000, 2_000_000)),
        Yield(),
        Run(Recorded((3_200_000, 4_000_000))),
    )
    assert a == JobProgram(a.job, (Context(steps, 2),), 4_000_000)
    normal = (Acquire(("trainers",)), Run(Normal(5_000_000, 1_000_000)), Yield(("trainers",)))
    exponential = (Acquire(("samplers",)), Run(Exponential(5_000_000)), Yield(("samplers",)))
    assert b.contexts == (Context(normal, 1, "trainer"), Context(exponential, 3, "sampler"))


@pytest.mark.parametrize(
    ("costs", "expected"),
    [
        ('kind = "bandwidth"\ngb_per_s = 50\nlatency_s = 0.5', Bandwidth(50_000_000_000, 500_000)),
        ('kind = "samples"\npark_s = { samplers = [1, 2] }', Samples({"samplers": (1_000_000, 2_000_000)})),
    ],
)
def test_every_cost_model_can_be_written(tmp_path: Path, costs: str, expected: object) -> None:
    old = 'kind = "table"\npark_s = { trainers = 1.5 }\ndefault_s = 0.25'
    assert read_toml(write(tmp_path, TEXT.replace(old, costs))).costs == expected


WRONG = [
    ("run_s = 1 ", "run_s = nan ", "jobs[0].steps[3].run_s: nan, must be a finite number"),
    ("run_s = 1 ", "run_s = -1 ", "jobs[0].steps[3].run_s: -1, must be greater than or equal to 0"),
    ("run_s = 1 ", "run_s = '1' ", "jobs[0].steps[3].run_s: '1', must be a valid number"),
    ("run_s = 1 ", "rum_s = 1 ", "jobs[0].steps[3].rum_s: unknown key, with value 1"),
    ("run_s = 1 ", "run_s = 1, recorded_s = [1] ", "jobs[0].steps[3]: a run has exactly one of"),
    ('"lognormal"', '"pareto"', "jobs[0].steps[1].run: {'distribution': 'pareto'"),
    ("sigma = 0.25", "sigma = inf", "jobs[0].steps[1].run.sigma: inf, must be a finite number"),
    (", sigma = 0.25", "", "jobs[0].steps[1].run.sigma: missing"),
    (
        "recorded_s = [3.2, 4]",
        "recorded_s = [3.2]",
        "jobs[0].steps[7]: 1 recorded durations, must be one for each of 2",
    ),
    ("iterations = 2", "iterations = 0", "jobs[0].iterations: 0, must be greater than or equal to 1"),
    ("iterations = 2", "iterations = 2.5", "jobs[0].iterations: 2.5, must be a valid integer"),
    ("iterations = 2", "iteration = 2", "jobs[0].iteration: unknown key, with value 2"),
    ('acquire = "trainers", ', 'acquire = "tainers", ', "jobs[0].steps[0]: unknown group 'tainers', must be one of"),
    (", nested = true", "", "jobs[0].steps[2]: acquire of 'samplers' while holding trainers, say nested = true"),
    ("{ yield = [] },", "", "jobs[0].steps[2]: 'samplers' is acquired and never yielded"),
    ("trainers = 27", "trainers = 80", "jobs[0].steps[0]: acquire of 'trainers' can never fit"),
    ("park_s = { trainers", "park_s = { trainer", "costs.park_s: unknown group 'trainer', must be one of"),
    ('kind = "table"', 'kind = "tabel"', "costs: {'kind': 'tabel'"),
    ("fail = 0.1", "fail = 1.1", "faults.fail: 1.1, must be less than or equal to 1"),
    ('name = "b"', 'name = "a"', "jobs[1].name: 'a' is also jobs[0], names must be distinct"),
    ('name = "samplers"', 'name = "trainers"', "groups[1].name: 'trainers' is there twice"),
    ("capacity_gb = 80", "capacity_gb = 0", "groups[0].capacity_gb: 0, must be greater than 0"),
    ("[[jobs.contexts]]", "[[job.contexts]]", "job: unknown key"),
    ('name = "small"', "name = ", "not TOML: Invalid value (at line 2, column 8)"),
]


@pytest.mark.parametrize(("old", "new", "said"), WRONG, ids=[said for _, _, said in WRONG])
def test_what_is_wrong_is_said_in_one_line(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in TEXT
    path = write(tmp_path, TEXT.replace(old, new))
    with pytest.raises(Invalid) as caught:
        read_toml(path)
    assert str(caught.value).startswith(f"{path}: {said}")
    assert "\n" not in str(caught.value)


def test_an_empty_scenario_lacks_groups(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="groups: there is none"):
        read_toml(write(tmp_path, ""))


def test_a_scenario_without_jobs_says_so(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="jobs: there is none"):
        read_toml(write(tmp_path, '[[groups]]\nname = "g"\n'))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"nowhere\.toml: cannot be read"):
        read_toml(tmp_path / "nowhere.toml")
