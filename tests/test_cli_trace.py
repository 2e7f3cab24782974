"""`tsched trace` on logs that the engine wrote."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tsched.cli import main
from tsched.engine import Engine
from tsched.events import Event, JobAdded, JobLeft, PhaseRequested, PhaseYielded
from tsched.journal import Header, Journal, JsonlJournal, Record, SqliteJournal
from tsched.model import Group, Job
from tsched.policies.fifo import Fifo

GROUPS = (Group("train", capacity_bytes=100), Group("idle"))
EVENTS: list[tuple[int, Event]] = [
    (0, JobAdded(Job("a", state_bytes={"train": 10}))),
    (0, JobAdded(Job("b", state_bytes={"train": 10}))),
    (1_000_000, PhaseRequested("a", 1, "a", ("train",), "step")),
    (2_000_000, PhaseRequested("b", 1, "b", ("train",), "step")),
    (3_500_000, PhaseYielded(1)),
    (5_000_000, PhaseYielded(2)),
    (5_000_000, JobLeft("b")),
]


def tsched(*args: object) -> Result:
    return CliRunner().invoke(main, [str(arg) for arg in args])


def write(journal: Journal, policy: str = "fifo", snapshot_at: int | None = None) -> None:
    engine = Engine(GROUPS, Fifo())
    journal.begin(Header(GROUPS, policy))
    for seq, (now, event) in enumerate(EVENTS):
        journal.append(Record(seq, now, event, tuple(engine.handle(event, now))))
        if seq == snapshot_at:
            journal.save_snapshot(seq, engine.snapshot())
    journal.close()


@pytest.fixture(params=["log.jsonl", "log.db"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / str(request.param)
    write(JsonlJournal(path) if path.suffix == ".jsonl" else SqliteJournal(path))
    return path


def test_show_prints_each_event_with_its_commands(log: Path) -> None:
    outcome = tsched("trace", "show", log)
    assert outcome.exit_code == 0, outcome.output
    assert outcome.output.count("#") == len(EVENTS)
    assert "PhaseYielded lease=1" in outcome.output
    assert outcome.output.count("-> Grant") == 2


def test_show_tells_the_story_of_one_job(log: Path) -> None:
    outcome = tsched("trace", "show", log, "--job", "b", "--json")
    assert [json.loads(line)["seq"] for line in outcome.output.splitlines()] == [1, 3, 4, 5, 6]
    assert tsched("trace", "show", log, "--group", "idle").output == ""


def test_show_keeps_the_last(log: Path) -> None:
    outcome = tsched("trace", "show", log, "--last", 2, "--json")
    assert [json.loads(line)["seq"] for line in outcome.output.splitlines()] == [5, 6]


@pytest.mark.parametrize("option", [("--job", "zed"), ("--group", "zed")])
def test_show_names_what_is_not_there(log: Path, option: tuple[str, str]) -> None:
    outcome = tsched("trace", "show", log, *option)
    assert outcome.exit_code == 2
    assert "zed" in outcome.stderr
    assert outcome.stderr.count("\n") == 1


def test_replay_finds_the_same_decisions(log: Path) -> None:
    assert tsched("trace", "replay", log).output == f"{len(EVENTS)} records under fifo, identical\n"
    found = json.loads(tsched("trace", "replay", log, "--json").output)
    assert found == {"records": len(EVENTS), "identical": True, "first_difference": None}


def test_replay_shows_where_decisions_differ_and_fails(log: Path) -> None:
    text = tmp_copy(log)
    altered = text.read_text().replace('"waited_us":1500000', '"waited_us":7')
    assert altered != text.read_text()
    text.write_text(altered)
    outcome = tsched("trace", "replay", text)
    assert outcome.exit_code == 1
    assert "record 4 is decided otherwise" in outcome.output
    assert "waited_us=7" in outcome.output
    assert json.loads(tsched("trace", "replay", text, "--json").output)["first_difference"]["seq"] == 4


def tmp_copy(log: Path) -> Path:
    """The same log as JSON lines."""
    path = log.with_suffix(".copy")
    write(JsonlJournal(path))
    return path


def test_replay_of_a_compacted_log_starts_from_its_snapshot(tmp_path: Path) -> None:
    for path, kind in ((tmp_path / "a.jsonl", JsonlJournal), (tmp_path / "a.db", SqliteJournal)):
        write(kind(path, retain_records=1), snapshot_at=3)
        before = path.read_bytes()
        assert tsched("trace", "replay", path).output == "3 records under fifo, identical\n"
        assert path.read_bytes() == before


def test_export_to_perfetto_goes_to_a_file_or_to_stdout(log: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    assert tsched("trace", "export", log, "--to", "perfetto", "-o", target).exit_code == 0
    written = json.loads(target.read_text())
    assert json.loads(tsched("trace", "export", log, "--to", "perfetto").output) == written
    assert any(event.get("name") == "a: step" for event in written["traceEvents"])


def test_a_truncated_last_line_is_recovered_from_with_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    write(JsonlJournal(path))
    path.write_bytes(path.read_bytes()[:-20])
    outcome = tsched("trace", "replay", path)
    assert outcome.exit_code == 0
    assert outcome.stdout == f"{len(EVENTS) - 1} records under fifo, identical\n"
    assert outcome.stderr.startswith("warning: ")
    assert outcome.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", ["header"]),
        ('{"format": "tsched-log", "version": 99}\n', ["version 99", "newer"]),
        ('{"format": "tsched-log", "ver', ["header"]),
        ('{"format": "other"}', ["no decision log"]),
        ("[[groups]]\n", ["line 1", "not JSON"]),
    ],
)
def test_what_is_no_log_is_refused_in_one_line_and_nothing_is_written(
    tmp_path: Path, content: str, words: list[str]
) -> None:
    path, target = tmp_path / "input", tmp_path / "out.json"
    path.write_text(content)
    outcome = tsched("trace", "export", path, "--to", "perfetto", "-o", target)
    assert outcome.exit_code == 2
    assert outcome.stderr.count("\n") == 1
    assert str(path) in outcome.stderr
    assert all(word in outcome.stderr for word in words), outcome.stderr
    assert not target.exists()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["input"]


@pytest.mark.parametrize("target", ["nowhere/out.json", "."])
def test_an_output_that_cannot_be_written_is_a_usage_error(log: Path, tmp_path: Path, target: str) -> None:
    outcome = tsched("trace", "export", log, "--to", "perfetto", "-o", tmp_path / target)
    assert outcome.exit_code == 2
    assert outcome.stderr.count("\n") == 1
