"""`openrl serve`: the API, the queue and one worker, in one process."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from openrl.access import DEFAULT_OWNER, Keys
from openrl.cli import INTERRUPTED, OK, folder, options, sources
from openrl.config import Config, ConfigInvalid
from openrl.queue import Limits
from openrl.service import Service, Settings
from openrl.store import Store


@click.command()
@options.local
@click.option("--host", help="Address to listen at; beyond this machine only with keys (OPENRL_HOST).")
@click.option("--port", type=click.IntRange(0, 65_535), help="Port; 0 takes a free one (OPENRL_PORT).")
@click.option("--threads", type=click.IntRange(0), help="Threads of the worker (OPENRL_THREADS).")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), help="(OPENRL_LOG_LEVEL)")
def serve(file: Path | None, **flags: Any) -> int:
    """Serve models to fine-tune and sample, until stopped."""
    from openrl.cli.server import listening

    config = options.load(file, **flags)
    with folder.held(config.folder), folder.opened_store(config.folder) as store:
        keys = Keys(store)
        has_keys = any(key.revoked_us is None for key in keys.all())
        check_reach(config, has_keys)
        for fault in sources.faults(config):
            click.echo(f"warning: {fault}", err=True)
        with listening(config.host, config.port) as taken:
            return run(config, store, taken, None if has_keys else first_key(keys))


def check_reach(config: Config, has_keys: bool) -> None:
    """Raises ConfigInvalid if others could connect and there is no key to tell them by."""
    if not has_keys and not config.is_loopback:
        raise ConfigInvalid(
            f"{config.host} can be reached from other machines, and there is no API key: "
            f"make one with `openrl keys create --data {config.folder}`, or serve at 127.0.0.1"
        )


def first_key(keys: Keys) -> str:
    """The secret of a key made now."""
    secret, _ = keys.create(DEFAULT_OWNER, "made at the first start", time.time_ns() // 1000)
    return secret


def run(config: Config, store: Store, taken: socket.socket, secret: str | None) -> int:
    """Serve until told to stop. What takes long to import is imported here, after all mistakes have been told."""
    import asyncio

    from openrl import log
    from openrl.app import create_app
    from openrl.cli.server import Server, address
    from openrl.torch_worker import TorchWorker
    from openrl.wire.decode import decode

    log.configure(config.log_level)
    paths, aliases = models(config)
    worker = TorchWorker(config.folder, paths, aliases, threads=config.threads or None, max_rank=config.limits.rank)
    service = Service(store, worker, decode, config.folder, settings(config))
    server = Server(create_app(service, Keys(store), config), lambda: announce(address(config.host, taken), secret))
    with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
        runner.run(server.serve([taken]))
    return INTERRUPTED if server.interrupted else OK


def models(config: Config) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Where models are, and what else they are called."""
    paths = {name: source.path for name, source in config.models.items() if source.path is not None}
    aliases = {name: source.alias_of for name, source in config.models.items() if source.alias_of is not None}
    return paths, aliases


def settings(config: Config) -> Settings:
    """The configuration's times and limits, as the service takes them."""
    kept = config.durability
    return Settings(
        queue=Limits(replay_units=kept.requests, replay_us=int(kept.work_s * 1e6)),
        idle_s=config.grace.session_s,
        ended_s=config.grace.finished_s,
        result_ttl_s=config.grace.result_s,
        sampler_ttl_s=config.grace.sampler_s,
        most_waiting=config.limits.waiting,
    )


def announce(url: str, secret: str | None) -> None:
    """Where the server is, and what the SDK needs to know."""
    click.echo(f"openrl serves at {url}")
    click.echo(f"export TINKER_BASE_URL={url}")
    click.echo(f"export TINKER_API_KEY={secret or 'tml-...   # a key made before; `openrl keys create` makes another'}")
    if secret:
        click.echo("this key is shown once: keep it, or make another with `openrl keys create`", err=True)
