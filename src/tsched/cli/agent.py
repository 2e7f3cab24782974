"""`tsched agent`: serve one host's node agent until a signal ends it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import anyio
import click

from tsched.agent.config import Config, read_config


@click.command()
@click.option("--config", "path", type=click.Path(path_type=Path), help="The agent's TOML file.")
@click.option("--listen", help="Where to serve: host:port or unix:/path.sock.  [default: 127.0.0.1:9001]")
@click.option("--node", help="What the orchestrator calls this host.  [default: 0]")
@click.option("--backend", help="What moves states, where a group names no other: a backend.  [default: process]")
@click.option("--state", help="The file that outlives the agent: whose processes are whose, and tokens.")
@click.option("--insecure", is_flag=True, default=None, help="Serve other hosts although nothing is encrypted.")
def agent(
    path: Path | None,
    listen: str | None,
    node: str | None,
    backend: str | None,
    state: str | None,
    insecure: bool | None,
) -> None:
    """Park and restore the jobs of this host, as an orchestrator orders."""
    flags = {"listen": listen, "node": node, "backend": backend, "state": state, "insecure": insecure}
    anyio.run(_serve, read_config(path, flags=flags, environment=os.environ))


async def _serve(config: Config) -> None:
    from tsched.agent.server import serve

    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with serve(config) as running:
            click.echo(f"agent of node {config.node} serves {running.address}", err=True)
            async for _ in signals:
                return
