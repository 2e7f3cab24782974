"""The frame of the command line: help, exit codes, lists of plug-ins, whole files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from tests.conftest import ROOT
from tsched import cli
from tsched.cli import main, output, pool
from tsched.errors import Deadlock, Invalid
from tsched.plugins import BACKENDS, BUILT_IN, POLICIES


def tsched(*args: str) -> Result:
    return CliRunner().invoke(main, list(args))


def test_help_imports_no_subcommand() -> None:
    code = (
        "import sys, click.testing, tsched.cli as cli\n"
        "out = click.testing.CliRunner().invoke(cli.main, ['--help'])\n"
        "assert out.exit_code == 0 and 'policies' in out.output, out.output\n"
        "heavy = [m for m in sys.modules if m.split('.')[0] in ('rich', 'pydantic', 'anyio')]\n"
        "assert heavy == [] and 'tsched.cli.sim' not in sys.modules, heavy"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, timeout=60)


def test_every_command_has_help() -> None:
    context = click.Context(main)
    names = main.list_commands(context)
    assert {"sim", "trace", "serve", "agent", "demo"} <= set(names)
    for name in names:
        outcome = tsched(name, "--help")
        assert outcome.exit_code == 0, outcome.output
        assert "Usage:" in outcome.output


@pytest.mark.parametrize("args", [["nope"], ["policies", "--nope"], ["trace", "export"], ["sim", "run"]])
def test_wrong_usage_is_one_line_and_exit_2(args: list[str]) -> None:
    outcome = tsched(*args)
    assert outcome.exit_code == 2
    assert outcome.stdout == ""
    assert outcome.stderr.startswith("error: ")
    assert outcome.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "code"),
    [(Invalid("bad\nvalue"), 2), (Deadlock("stuck"), 1), (KeyboardInterrupt(), 130), (click.Abort(), 130)],
)
def test_errors_become_exit_codes(error: BaseException, code: int) -> None:
    @click.command(cls=cli.LazyGroup, invoke_without_command=True)
    def failing() -> None:
        raise error

    outcome = CliRunner().invoke(failing, [])
    assert outcome.exit_code == code
    assert outcome.stderr.strip().count("\n") == 0
    assert "Traceback" not in outcome.stderr


def test_policies_are_listed_with_their_claims_and_options() -> None:
    outcome = tsched("policies", "--json")
    found = {each["name"]: each for each in json.loads(outcome.output)}
    assert list(found)[: len(BUILT_IN[POLICIES])] == list(BUILT_IN[POLICIES])
    assert found["fifo"]["options"] == {"window": 1, "linger_s": 0.0}
    assert found["longest_remaining_first"]["may_starve"] is True
    table = tsched("policies").output
    assert all(name in table for name in found)
    assert "may starve" in table


def test_backends_are_listed() -> None:
    found = json.loads(tsched("backends", "--json").output)
    assert [each["name"] for each in found][: len(BUILT_IN[BACKENDS])] == list(BUILT_IN[BACKENDS])
    assert not [each for each in found if "error" in each]
    table = tsched("backends").output
    assert all(each["name"] in table for each in found)
    assert " at 0x" not in table


def test_a_plugin_that_cannot_be_loaded_does_not_hide_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["fifo", "no.such.module:Thing"]
    monkeypatch.setattr("tsched.plugins.policy_names", lambda: names)
    outcome = tsched("policies")
    assert outcome.exit_code == 0
    assert "cannot be imported" in " ".join(outcome.output.split())
    assert "arrival" in outcome.output


def test_tables_have_no_colour_where_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in tsched("policies").output


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "out"
    output.write_whole(target, b"one")

    def full(*_: object) -> Iterator[None]:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(Invalid, match="No space left"):
        output.write_whole(target, b"two")
    assert target.read_bytes() == b"one"
    assert [each.name for each in tmp_path.iterdir()] == ["out"]


def square(number: int) -> int:
    if number == 13:
        raise Invalid("13 is unlucky")
    return number * number


@pytest.mark.parametrize("worth_it_s", [0.0, 1e9])
def test_spread_work_keeps_its_order_on_one_core_and_on_several(
    worth_it_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "WORTH_IT_S", worth_it_s)
    assert pool.spread("squares", square, list(range(9)), workers=2) == [n * n for n in range(9)]
    assert pool.spread("squares", square, [], workers=2) == []
    with pytest.raises(Invalid, match="unlucky"):
        pool.spread("squares", square, [1, 2, 13, 4], workers=2)
