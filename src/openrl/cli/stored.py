"""`openrl checkpoints`: what a running server has stored, as the key's owner sees it."""

from __future__ import annotations

from typing import Any

import click

from openrl.cli import options
from openrl.cli.remote import Remote
from openrl.errors import RequestError


@click.group()
def checkpoints() -> None:
    """List, publish and delete what a running server has stored (TINKER_BASE_URL, TINKER_API_KEY)."""


@checkpoints.command(name="list")
@options.as_json
@click.option("--limit", default=100, show_default=True, type=click.IntRange(1, 10_000))
@click.option("--run", help="Only of this training run.")
def listed(as_json: bool, limit: int, run: str | None) -> None:
    """Show checkpoints."""
    path = f"training_runs/{run}/checkpoints" if run else f"checkpoints?limit={limit}"
    options.show([row(one) for one in Remote().ask("GET", path)["checkpoints"]], as_json)


@checkpoints.command()
@click.argument("path")
def delete(path: str) -> None:
    """Delete a checkpoint, for good."""
    Remote().ask("DELETE", place(path))
    click.echo(f"deleted {path}")


@checkpoints.command()
@click.argument("path")
def publish(path: str) -> None:
    """Let every key of the server read a checkpoint."""
    Remote().ask("POST", place(path) + "/publish")
    click.echo(f"published {path}")


@checkpoints.command()
@click.argument("path")
def unpublish(path: str) -> None:
    """Keep a checkpoint to its owner again."""
    Remote().ask("DELETE", place(path) + "/publish")
    click.echo(f"unpublished {path}")


@checkpoints.command()
@click.argument("path")
@click.argument("seconds", type=click.IntRange(1))
def expire(path: str, seconds: int) -> None:
    """Delete a checkpoint after so many seconds."""
    Remote().ask("PUT", place(path) + "/ttl", {"ttl_seconds": seconds})
    click.echo(f"{path} expires in {seconds} s")


def place(path: str) -> str:
    """The checkpoint's place in the API."""
    run, _, rest = path.removeprefix("tinker://").partition("/")
    if not path.startswith("tinker://") or rest.count("/") != 1:
        raise RequestError(f"{path!r} is no checkpoint: tinker://RUN/weights/NAME would be")
    return f"training_runs/{run}/checkpoints/{rest}"


def row(one: dict[str, Any]) -> dict[str, Any]:
    return {
        "tinker_path": one["tinker_path"],
        "type": one["checkpoint_type"],
        "time": one["time"],
        "size_bytes": one.get("size_bytes"),
        "public": one["public"],
        "expires_at": one.get("expires_at"),
    }
