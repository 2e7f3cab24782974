"""How results leave the program: tables, JSON lines, whole files, and a progress bar on stderr."""

from __future__ import annotations

import contextlib
import os
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from tsched.errors import Invalid

PIPED, TEXT_COLUMN, BETWEEN = 120, 24, 3


def print_json(value: Any) -> None:
    """One object on one line of stdout; a number that is not finite becomes null."""
    click.echo(msgspec.json.encode(value))


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, numeric_from: int = 1) -> None:
    """A table on stdout. Columns from `numeric_from` on are aligned to the right and as narrow as their cells allow."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    needed = 0
    for index, heading in enumerate(headings):
        longest = max((len(row[index]) for row in rows), default=0)
        if index == 0 or index >= numeric_from:
            width = max(longest, *map(len, heading.split()), 1)
            narrow = "\n".join(textwrap.wrap(heading, width))
            table.add_column(narrow, no_wrap=True, width=width, justify="right" if index else "left")
        else:
            width = min(longest, TEXT_COLUMN)
            table.add_column(heading, min_width=width)
        needed += width + BETWEEN
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console = Console(file=sys.stdout, highlight=False)
    console.width = max(console.width if sys.stdout.isatty() else PIPED, needed)
    with console.capture() as capture:
        console.print(table)
    for line in capture.get().splitlines():
        click.echo(line.rstrip())


def write_whole(path: Path, content: bytes) -> None:
    """Write a file at once or not at all: a reader never sees a part of it."""
    with replacing(path) as beside:
        beside.write_bytes(content)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A file beside `path` to write to, which takes its place when nothing went wrong, and is gone otherwise."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        yield beside
        os.replace(beside, path)
    except OSError as error:
        raise Invalid(f"{path}: cannot be written: {error.strerror}") from error
    finally:
        beside.unlink(missing_ok=True)


def check_writable(path: Path | None, *others: Path | None) -> None:
    """Refuse an output path before the work is done rather than after; `others` are read or written too."""
    if path is None:
        return
    if any(other is not None and other.absolute() == path.absolute() for other in others):
        raise Invalid(f"{path}: is read or written already; name another file")
    if path.is_dir():
        raise Invalid(f"{path}: is a folder; name a file")
    if not path.parent.is_dir():
        raise Invalid(f"{path}: there is no folder {path.parent}")
    if not os.access(path.parent, os.W_OK):
        raise Invalid(f"{path}: folder {path.parent} cannot be written to")


@contextlib.contextmanager
def progress(title: str, total: int) -> Iterator[Callable[[], None]]:
    """A bar on stderr where that is a terminal; the function that it gives counts one step."""
    if total < 2 or not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total)
        yield lambda: bar.advance(task)
