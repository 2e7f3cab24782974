"""`tsched demo`: the simulated and the live run beside each other."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.conftest import ROOT
from tests.test_cli_sim import SCENARIO
from tsched.cli import demo, main
from tsched.events import Woke
from tsched.journal import Record
from tsched.plugins import policy_names
from tsched.sim.workload import Workload
from tsched.testing.play import Played, play


def run(*args: object) -> Result:
    return CliRunner().invoke(main, ["demo", *(str(arg) for arg in args)])


def test_the_recorded_run_is_predicted_and_run_live(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TSCHED_SHARED", str(shared))
    monkeypatch.chdir(tmp_path)
    outcome = run()
    assert outcome.exit_code == 0, outcome.output
    assert "verl_sync_2xh100" in outcome.output
    assert "records, identical, under " + ", ".join(policy_names()) in outcome.output
    assert "learned from the first 50.0 %" in outcome.output
    assert (tmp_path / "build" / "demo.html").read_text().count("<canvas ") == len(policy_names())


def test_any_file_will_do(tmp_path: Path) -> None:
    path = tmp_path / "two.toml"
    path.write_text(SCENARIO)
    outcome = run(path, "--policy", "fifo", "--output", tmp_path / "out.html")
    assert outcome.exit_code == 0, outcome.output
    assert "identical, under fifo" in outcome.output
    assert "learned" not in outcome.output
    assert (tmp_path / "out.html").exists()


def test_a_difference_between_live_and_simulated_is_shown_and_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(workload: Workload, policy: str, seed: int) -> Played:
        played = play(workload, policy, seed)
        wrong = Record(0, 7, played.records[0].event)
        return Played(played.header, [wrong, *played.records[1:]])

    path = tmp_path / "two.toml"
    path.write_text(SCENARIO)
    monkeypatch.setattr(demo, "play", late)
    outcome = run(path, "--policy", "fifo", "--output", tmp_path / "out.html")
    assert outcome.exit_code == 1
    assert "fifo: the live and the simulated decision log differ: record 0 is" in outcome.output


def test_a_record_too_few_is_a_difference() -> None:
    whole = [Record(seq, 7, Woke()) for seq in range(2)]
    assert demo.first_difference(whole, list(whole)) is None
    assert str(demo.first_difference(whole, whole[:1])).endswith("None live")


def test_without_a_recording_the_scenario_of_the_checkout_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a" / "simulations").mkdir(parents=True)
    (tmp_path / "a" / demo.SCENARIO).write_text(SCENARIO)
    monkeypatch.delenv("TSCHED_SHARED", raising=False)
    monkeypatch.chdir(tmp_path / "a")
    monkeypatch.setattr(demo, "__file__", str(tmp_path / "a" / "src" / "tsched" / "cli" / "demo.py"))
    assert demo.find_input() == demo.SCENARIO
    (tmp_path / "a" / demo.SCENARIO).unlink()
    outcome = run()
    assert outcome.exit_code == 2
    assert outcome.stderr.count("\n") == 1


@pytest.mark.skipif(not (ROOT / demo.SCENARIO).exists(), reason="no checkout")
def test_the_shipped_scenario_runs(tmp_path: Path) -> None:
    outcome = run(ROOT / demo.SCENARIO, "--policy", "fifo", "--output", tmp_path / "out.html")
    assert outcome.exit_code == 0, outcome.output
