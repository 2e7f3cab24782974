"""`openrl jobs`: the sessions of a running server, as the key's owner sees them."""

from __future__ import annotations

from typing import Any

import click

from openrl.cli import options
from openrl.cli.remote import Remote


@click.group()
def jobs() -> None:
    """List and cancel the sessions of a running server (TINKER_BASE_URL, TINKER_API_KEY)."""


@jobs.command(name="list")
@options.as_json
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, 200))
def listed(as_json: bool, limit: int) -> None:
    """Show sessions, newest first."""
    found = Remote().ask("POST", "sessions/search", {"limit": limit})
    options.show([row(session) for session in found["sessions"]], as_json)


@jobs.command()
@options.as_json
@click.argument("session_id")
def show(as_json: bool, session_id: str) -> None:
    """Show a session's training runs."""
    remote = Remote()
    runs = remote.ask("GET", f"sessions/{session_id}")["training_run_ids"]
    options.show([run(remote.ask("GET", f"training_runs/{run_id}")) for run_id in runs], as_json)


@jobs.command()
@click.argument("session_id")
def cancel(session_id: str) -> None:
    """End a session: what it waits for fails, and its memory is freed. Its checkpoints stay."""
    Remote().ask("POST", f"sessions/{session_id}/cancel")
    click.echo(f"cancelled {session_id}")


def row(session: dict[str, Any]) -> dict[str, Any]:
    return {
        "session_id": session["session_id"],
        "created": session["created_at"],
        "status": session["status"]["type"],
        "name": session.get("display_name"),
        "checkpoints": session["checkpoints_count"],
    }


def run(one: dict[str, Any]) -> dict[str, Any]:
    return {
        "training_run_id": one["training_run_id"],
        "base_model": one["base_model"],
        "lora_rank": one.get("lora_rank"),
        "last_request": one["last_request_time"],
        "lost": one["corrupted"],
    }
