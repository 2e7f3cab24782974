"""Learned from a first part, the rest is predicted, with an interval that says how far to trust it."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

from tsched.errors import Invalid
from tsched.model import Group
from tsched.sim import Workload, llmd
from tsched.sim.fit import fit
from tsched.sim.load import load_fit
from tsched.sim.predict import predict
from tsched.sim.recording import Turn, makespan_us, replay

GROUP = (Group("g"),)


def steady(count: int, length: int = 10_000_000, noise: float = 0.0, drift: float = 0.0) -> list[Turn]:
    """Two jobs that alternate on one group, a second apart."""
    rng = Random(1)
    now, turns = 0, []
    for index in range(count):
        until = now + 1_000_000 + round(length * (1 + drift * index) * (1 + noise * rng.uniform(-1, 1)))
        turns.append(Turn("ab"[index % 2], ("g",), now, now + 1_000_000, ((until, ("g",)),)))
        now = until
    return turns


def exact(turns: list[Turn]) -> Workload:
    programs = tuple(each.program for each in replay(turns))
    return Workload("w", GROUP, programs, recorded_makespan_us=makespan_us(turns))


def test_a_steady_run_is_predicted_exactly() -> None:
    turns = steady(40)
    found = predict(fit(exact(turns), turns, 0.5, scenarios=20))
    assert found.error == pytest.approx(0, abs=0.01)
    assert found.low_s == found.makespan_s == found.high_s


@pytest.mark.parametrize("share", [0.3, 0.5, 0.8])
def test_a_noisy_run_lies_within_the_interval(share: float) -> None:
    turns = steady(60, noise=0.2)
    found = predict(fit(exact(turns), turns, share, scenarios=60))
    assert found.low_s <= found.makespan_s <= found.high_s
    assert abs(found.error or 0) < 0.1
    assert found.holds


def test_a_drifting_run_lies_within_the_interval() -> None:
    turns = steady(40, drift=0.002)
    found = predict(fit(exact(turns), turns, 0.5, scenarios=60))
    assert abs(found.error or 0) < 0.05


def test_what_ended_before_the_cut_keeps_its_length() -> None:
    turns = steady(40, noise=0.2)
    whole = exact(turns)
    assert fit(whole, turns, 1.0, scenarios=1).expected.jobs == whole.jobs
    half = fit(whole, turns, 0.5, scenarios=1).expected
    for known, told in zip(whole.jobs, half.jobs, strict=True):
        steps, predicted = known.contexts[0].steps, told.contexts[0].steps
        assert len(steps) == len(predicted)
        assert steps[: len(steps) // 3] == predicted[: len(steps) // 3]
        assert steps != predicted


@pytest.mark.parametrize("share", [0, -1, 1.5, float("nan")])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    turns = steady(10)
    with pytest.raises(Invalid, match="must be a share"):
        fit(exact(turns), turns, share)


def test_a_first_part_that_shows_nothing_is_refused() -> None:
    turns = steady(4)
    with pytest.raises(Invalid, match="learn from a larger share"):
        fit(exact(turns), turns, 0.01)


def test_a_scenario_has_nothing_to_learn_from(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text("")
    with pytest.raises(Invalid, match="nothing to learn from"):
        load_fit(path, 0.5)


def test_the_second_half_of_the_recorded_run_is_predicted_within_five_percent(shared: Path) -> None:
    path = shared / "traces/verl_sync_2xh100.json"
    found = predict(load_fit(path, 0.5))
    truth = llmd.read_llmd(path).recorded_makespan_us or 0
    assert found.recorded_makespan_s == truth / 1e6
    assert abs(found.error or 1) < 0.05
    # also of the second half alone, which is all that was predicted
    rest = truth / 1e6 / 2
    assert (found.makespan_s - rest) / rest == pytest.approx(1, abs=0.05)
    assert found.holds
    assert found.high_s - found.low_s < 0.15 * truth / 1e6


def test_a_decision_log_can_be_fitted(tmp_path: Path) -> None:
    from tsched.journal import JsonlJournal
    from tsched.sim import simulate

    journal = JsonlJournal(tmp_path / "log.jsonl")
    workload = llmd.workload({"timeslice": {"events": _events()}}, "r")
    simulate(workload, journal=journal)
    journal.close()
    found = predict(load_fit(tmp_path / "log.jsonl", 0.5, scenarios=20))
    assert abs(found.error or 0) < 0.05
    (tmp_path / "r.json").write_text(json.dumps({"timeslice": {"events": _events()}}))
    assert abs(predict(load_fit(tmp_path / "r.json", 0.5, scenarios=20)).error or 0) < 0.05


def _events() -> list[dict[str, object]]:
    events: list[dict[str, object]] = []
    for index in range(20):
        job, start = "ab"[index % 2], 11.0 * index
        events.append({"t": start, "kind": "acquired", "job": job, "pool": "p", "wait_ms": 9000 if index > 1 else 0})
        events.append({"t": start + 10, "kind": "yielded", "job": job, "pool": "p"})
    return events
