"""docs/openrl.md tells what is: every key of the configuration with its default, every command, every number."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from urllib.request import urlopen

import click
import pytest
from click.testing import CliRunner

from openrl.cli import main
from openrl.config import Config
from tests.openrl.live_server import Live

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "openrl.md").read_text()
COMMANDS = re.findall(r"^\| `openrl ([a-z ]+?)(?: [\[A-Z].*?)?` \|", PAGE, re.MULTILINE)


def test_the_configuration_shown_has_every_key_and_its_default() -> None:
    block = re.search(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    assert block is not None
    shown = tomllib.loads(block[1])
    assert Config.model_validate(shown).models.keys() == shown.pop("models").keys()
    assert shown == Config().model_dump(mode="json", exclude={"models"})


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_shown_is_one_and_has_the_options_shown(command: str) -> None:
    told = CliRunner().invoke(main, [*command.split(), "--help"])
    assert told.exit_code == 0
    shown = re.search(rf"^\| `openrl {command}( .*?)?` \|", PAGE, re.MULTILINE)
    assert shown is not None
    assert all(option in told.stdout for option in re.findall(r"--[a-z-]+", shown[1] or ""))


def test_every_command_is_shown() -> None:
    context = click.Context(main)
    found = {name: main.get_command(context, name) for name in main.list_commands(context)}
    assert {name for name, command in found.items() if not isinstance(command, click.Group)} <= set(COMMANDS)
    groups = {name: command for name, command in found.items() if isinstance(command, click.Group)}
    assert groups.keys() == {"keys", "jobs", "checkpoints"}
    assert {f"{group} {name}" for group, command in groups.items() for name in command.commands} <= set(COMMANDS)


def test_the_numbers_shown_are_those_that_are_served(live: Live) -> None:
    with urlopen(f"{live.url}/metrics") as answer:
        kinds = dict(re.findall(r"^# TYPE (openrl_\w+) (\w+)$", answer.read().decode(), re.MULTILINE))
    served = {name for name in kinds if not name.endswith("_created")}
    assert set(re.findall(r"^\| `(openrl_\w+)` \|", PAGE, re.MULTILINE)) == served
