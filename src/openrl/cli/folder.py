"""The data folder: made, opened, and held by at most one server."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from openrl.errors import OpenRLError
from openrl.store import SqliteStore, open_store

STORE = "openrl.sqlite"


class FolderInUse(OpenRLError, RuntimeError):
    """Another server works in the data folder."""


def prepared(folder: Path) -> Path:
    """The folder, there, and closed to other users."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


@contextmanager
def opened_store(folder: Path) -> Iterator[SqliteStore]:
    """The folder's store."""
    with closing(open_store(prepared(folder) / STORE)) as store:
        yield store


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Nobody else serves from the folder meanwhile; the hold ends with the process, however it ends."""
    with open(prepared(folder) / "serving", "w", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise FolderInUse(
                f"{folder}: another `openrl serve` works here: stop it, or give this one another --data"
            ) from error
        file.write(str(os.getpid()))
        file.flush()
        yield
