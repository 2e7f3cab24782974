"""Options that several commands have."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from openrl import config

F = TypeVar("F", bound=Callable[..., Any])


def local(command: F) -> F:
    """For commands that work on a data folder."""
    file = click.option(
        "--config", "file", type=click.Path(path_type=Path, dir_okay=False), help="TOML file (OPENRL_CONFIG)."
    )
    data = click.option("--data", type=click.Path(path_type=Path, file_okay=False), help="Data folder (OPENRL_DATA).")
    return file(data(command))


as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def load(file: Path | None, **flags: Any) -> config.Config:
    """The configuration that the command runs with."""
    return config.load(file, os.environ, flags)


def show(rows: list[dict[str, Any]], as_json: bool) -> None:
    """As JSON, or as a table whose columns are the keys."""
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    if not rows:
        click.echo("none", err=True)
        return
    table = [[*rows[0]], *([text(value) for value in row.values()] for row in rows)]
    widths = [max(len(line[column]) for line in table) for column in range(len(table[0]))]
    for line in table:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def text(value: Any) -> str:
    return "-" if value is None or value == "" else str(value)
