"""`openrl keys`: works on the data folder, whether a server runs on it or not."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from openrl.access import DEFAULT_OWNER, Keys
from openrl.cli import options
from openrl.cli.folder import opened_store
from openrl.store import Key


@click.group()
def keys() -> None:
    """Create, list and revoke API keys."""


@contextmanager
def opened(file: Path | None, data: Path | None) -> Iterator[Keys]:
    """The keys of the configured data folder."""
    with opened_store(options.load(file, data=data).folder) as store:
        yield Keys(store)


@keys.command()
@options.local
@options.as_json
@click.option("--owner", default=DEFAULT_OWNER, show_default=True, help="Whose models and checkpoints it opens.")
@click.option("--name", default="", help="A note, to know it by.")
def create(file: Path | None, data: Path | None, as_json: bool, owner: str, name: str) -> None:
    """Make a key. It is shown once: only its hash is stored."""
    with opened(file, data) as table:
        secret, key = table.create(owner, name, time.time_ns() // 1000)
    if as_json:
        options.show([{"key": secret, **row(key)}], as_json=True)
    else:
        click.echo(secret)


@keys.command(name="list")
@options.local
@options.as_json
def listed(file: Path | None, data: Path | None, as_json: bool) -> None:
    """Show all keys, without the secrets."""
    with opened(file, data) as table:
        options.show([row(key) for key in table.all()], as_json)


@keys.command()
@options.local
@click.argument("key_id")
def revoke(file: Path | None, data: Path | None, key_id: str) -> None:
    """End a key, by its number in `keys list`. A running server notices at once."""
    with opened(file, data) as table:
        key = table.revoke(key_id, time.time_ns() // 1000)
    click.echo(f"revoked key {key.key_id} of {key.owner}")


def row(key: Key) -> dict[str, Any]:
    return {
        "key_id": key.key_id,
        "owner": key.owner,
        "name": key.name,
        "created": day(key.created_us),
        "revoked": None if key.revoked_us is None else day(key.revoked_us),
    }


def day(time_us: int) -> str:
    return datetime.fromtimestamp(time_us / 1e6, UTC).isoformat(timespec="seconds")
