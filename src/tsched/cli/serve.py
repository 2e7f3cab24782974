"""`tsched serve`: the orchestrator, until a signal ends it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import click

from tsched.orchestrator.config import Config, read_config

if TYPE_CHECKING:
    from tsched.orchestrator.server import Running


@click.command()
@click.option("--config", "path", type=click.Path(path_type=Path), help="The server's TOML file.")
@click.option("--listen", help="Where to serve: host:port or unix:/path.sock.  [default: 127.0.0.1:50051]")
@click.option("--http", help="Metrics and health: host:port, or '' for none.  [default: 127.0.0.1:9090]")
@click.option("--log", help="The decision log, from which it goes on.  [default: tsched.db]")
@click.option("--policy", help="Who is next: a policy, with options.  [default: fifo]")
@click.option("--group", "groups", multiple=True, metavar="NAME", help="A group of devices; may be given again.")
@click.option("--agent", type=click.Choice(["embedded"]), help="Serve the devices of this host too.")
@click.option("--insecure", is_flag=True, default=None, help="Plain text, although other hosts can listen.")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), help="[default: info]")
def serve(path: Path | None, groups: tuple[str, ...], **server: Any) -> None:
    """Give groups of devices to jobs in turns."""
    flags = {"server": server, "groups": {name: {} for name in groups}}
    anyio.run(_serve, read_config(path, flags=flags, environment=os.environ))


async def _serve(config: Config) -> None:
    from tsched.orchestrator import log, server

    log.configure(config.server.log_level)
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with server.serve(config) as running:
            click.echo(_where(running), err=True)
            await _first(running.failed, signals.__anext__)


async def _first(*waits: Callable[[], Awaitable[Any]]) -> None:
    """Wait until one of them ends; raises what it raises."""
    tasks = [asyncio.ensure_future(wait()) for wait in waits]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
    for task in done:
        task.result()


def _where(running: Running) -> str:
    parts = [f"tsched serves {', '.join(running.scheduler.groups)} at {running.address}"]
    parts += [f"metrics and health at http://{running.http}"] if running.http else []
    parts += [f"agent at {running.agent}"] if running.agent else []
    return "; ".join(parts)
