"""Folders that appear whole or not at all, also where the power fails, and are never written again."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path


def publish(folder: Path, write: Callable[[Path], None]) -> int:
    """Let `write` fill a new folder, then give it its name; its size in bytes.

    A folder of this name that is there already was published whole, and is left as it is.
    """
    if folder.exists():
        return size_bytes(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = folder.parent / f".{folder.name}.{secrets.token_hex(4)}"
    unfinished.mkdir()
    try:
        write(unfinished)
        _settle(unfinished)
        unfinished.rename(folder)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    _sync(folder.parent)
    return size_bytes(folder)


def meant(folder: Path) -> str:
    """The name of a folder, or that which it gets once it is whole."""
    return folder.name[1:].rpartition(".")[0] if folder.name.startswith(".") else folder.name


def size_bytes(folder: Path) -> int:
    """What the files in a folder hold."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _settle(folder: Path) -> None:
    for path in folder.rglob("*"):
        _sync(path)
    _sync(folder)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
