"""`openrl doctor`: whether this machine can serve, one line a check."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import click

from openrl.cli import FAILED, OK, options
from openrl.cli.folder import STORE, prepared
from openrl.cli.sources import Unwell, found
from openrl.config import Config
from openrl.errors import OpenRLError
from openrl.store import Key, open_store

ROOM_BYTES = 1 << 30


@click.command()
@options.local
@options.as_json
def doctor(file: Path | None, data: Path | None, as_json: bool) -> int:
    """Check the configuration, data folder, store, disk, models and torch."""
    config = options.load(file, data=data)
    rows = [outcome(name, check) for name, check in checks(config)]
    options.show(rows, as_json)
    return OK if all(row["ok"] for row in rows) else FAILED


def outcome(name: str, check: Callable[[], str]) -> dict[str, Any]:
    """One check, as a row."""
    try:
        return {"check": name, "ok": True, "detail": check()}
    except (OpenRLError, OSError, ImportError) as error:
        return {"check": name, "ok": False, "detail": str(error)}


def checks(config: Config) -> Iterator[tuple[str, Callable[[], str]]]:
    """What there is to check, by name."""
    yield "folder", lambda: writable(config.folder)
    yield "store", lambda: readable(config.folder / STORE)
    yield "disk", lambda: roomy(config.folder)
    for name, source in config.models.items():
        yield f"model {name}", partial(found, config, source)
    yield "torch", torch_works


def writable(folder: Path) -> str:
    probe = prepared(folder) / "doctor"
    probe.write_text("can be written")
    probe.unlink()
    return str(folder)


def readable(path: Path) -> str:
    """Opening a store also brings it to this version's schema."""
    with closing(open_store(path)) as store:
        live = store.count(Key, revoked_us=None)
    return f"{path}, {live} keys" if live else f"{path}, no keys: the first start on loopback makes one"


def roomy(folder: Path) -> str:
    free = shutil.disk_usage(folder).free
    if free < ROOM_BYTES:
        raise Unwell(f"{free / 1e9:.1f} GB free at {folder}: make room for checkpoints, or name another folder")
    return f"{free / 1e9:.1f} GB free"


def torch_works() -> str:
    try:
        import torch
    except ImportError as error:
        raise Unwell(f"torch cannot be imported: {error}: pip install 'tsched[openrl]'") from error
    if not bool(torch.isfinite(torch.ones(2, 2) @ torch.ones(2, 2)).all()):
        raise Unwell("torch computes wrong results on this machine")
    return f"torch {torch.__version__}, transformers {installed('transformers')}, {torch.get_num_threads()} threads"


def installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"
