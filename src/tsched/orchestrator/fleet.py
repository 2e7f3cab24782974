"""All agents that an orchestrator gives orders to: those of the config, and the embedded one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tsched.orchestrator.agents import AgentBackend
from tsched.orchestrator.config import Config
from tsched.orchestrator.credentials import agent_credentials
from tsched.orchestrator.embedded import embedded


@dataclass(frozen=True, slots=True)
class Fleet:
    """The agents' addresses by group and node, and what gives them orders. `embedded`: where that one is, or empty."""

    addresses: dict[str, dict[str, str]]
    backend: AgentBackend
    embedded: str = ""


@asynccontextmanager
async def fleet(config: Config) -> AsyncIterator[Fleet]:
    """Connected until the body ends. Raises `Invalid` for credentials, or an embedded agent, that cannot be."""
    shown = agent_credentials(config.agents)
    async with embedded(config, shown) as own:
        addresses = {group: dict(nodes) for group, nodes in config.addresses.items()}
        for group, nodes in ({} if own is None else own.addresses).items():
            addresses.setdefault(group, {}).update(nodes)
        special = {} if own is None else {own.address: own.credentials}
        async with AgentBackend(addresses, credentials=shown, own=special) as backend:
            yield Fleet(addresses, backend, "" if own is None else own.address)
