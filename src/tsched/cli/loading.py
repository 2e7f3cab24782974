"""Inputs as the commands need them: logs and workloads, what is odd about them said on stderr."""

from __future__ import annotations

import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from tsched.journal import Header, JsonlJournal, Record, Recovered, SqliteJournal, TruncatedLog, read_log
from tsched.journal.sqlite import MAGIC


def load_log(path: Path) -> tuple[Header, list[Record]]:
    """A decision log, JSON lines or SQLite; raises `Invalid` for anything else."""
    with warnings_on_stderr():
        return read_log(path)


def load_recovered(path: Path) -> Recovered | None:
    """What a restart from this log would find. Read from a copy: opening a log for a scheduler may change it."""
    with tempfile.TemporaryDirectory(prefix="tsched-") as folder:
        copy = Path(folder, path.name)
        shutil.copyfile(path, copy)
        tail = path.with_name(path.name + "-wal")
        if tail.exists():
            shutil.copyfile(tail, copy.with_name(tail.name))
        journal = SqliteJournal(copy) if path.read_bytes().startswith(MAGIC) else JsonlJournal(copy)
        try:
            return journal.load()
        finally:
            journal.close()


@contextmanager
def warnings_on_stderr() -> Iterator[None]:
    """Whatever was recovered from is reported, each once, in one line."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", TruncatedLog)
        yield
    for text in dict.fromkeys(str(warning.message) for warning in caught):
        click.echo("warning: " + " ".join(text.split()), err=True)
