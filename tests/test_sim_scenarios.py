"""The shipped scenarios answer their questions as they say that they do."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from statistics import median

import pytest

from tsched.plugins import policy_names
from tsched.sim import Result, simulate
from tsched.sim.baselines import Baselines
from tsched.sim.load import load_workload

FOLDER = Path(__file__).parent.parent / "simulations"
NAMES = sorted(path.stem for path in FOLDER.glob("*.toml"))


@cache
def runs(name: str, policy: str, seeds: int) -> list[tuple[Result, float]]:
    """Each seed's result, and the serial makespan."""
    draws = [load_workload(FOLDER / f"{name}.toml").draw(seed) for seed in range(seeds)]
    return [(simulate(drawn, policy, keep=False).result, Baselines(drawn).serial_s) for drawn in draws]


def of_serial(name: str, policy: str) -> float:
    return median(result.makespan_s / serial for result, serial in runs(name, policy, 10))


@pytest.mark.parametrize("name", NAMES)
def test_every_file_states_question_command_and_answer_and_is_listed(name: str) -> None:
    text = (FOLDER / f"{name}.toml").read_text()
    assert text.startswith("# Question. ")
    assert f"# Command. tsched sim run simulations/{name}.toml" in text
    assert re.search(r"^# Answer\. \S", text, re.MULTILINE)
    assert "@" not in text
    assert f"[{name}.toml]({name}.toml)" in (FOLDER / "README.md").read_text()
    assert load_workload(FOLDER / f"{name}.toml").name == name


def test_case_study_with_exclusive_residency() -> None:
    assert of_serial("case_study_exclusive", "fifo") <= 0.62
    assert of_serial("case_study_exclusive", "fifo") == pytest.approx(0.571, abs=0.005)
    assert of_serial("case_study_exclusive", "shortest_phase_first") <= 0.58
    assert of_serial("case_study_exclusive", "shortest_phase_first") == pytest.approx(0.568, abs=0.005)


def test_case_study_with_all_states_resident() -> None:
    assert of_serial("case_study_resident", "fifo") <= 0.53
    assert of_serial("case_study_resident", "fifo") == pytest.approx(0.519, abs=0.005)
    found = runs("case_study_resident", "fifo", 10)
    assert median(1 + result.gap_to_lower_bound for result, _ in found) <= 1.15
    assert all(result.switches == 0 for result, _ in found)


@pytest.mark.parametrize("policy", policy_names())
def test_three_equal_jobs_keep_the_busier_pool_busy_but_under_fifo(policy: str) -> None:
    ((result, _),) = runs("three_equal_jobs", policy, 1)
    if policy == "fifo":
        assert result.duty["samplers"] == pytest.approx(0.799, abs=0.01)
    else:
        assert result.duty["samplers"] >= 0.95


@pytest.mark.parametrize("policy", policy_names())
def test_the_demo_is_close_to_the_best_possible(policy: str) -> None:
    ((result, serial),) = runs("demo", policy, 1)
    assert result.makespan_s / serial == pytest.approx(0.553, abs=0.005)
    assert result.gap_to_lower_bound < 0.04
