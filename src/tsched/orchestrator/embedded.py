"""The agent in the orchestrator's own process, for one machine: `server.agent = "embedded"`.

It is the agent that `tsched agent` serves, on the address that its section says, since jobs come to it too. It takes
orders from this orchestrator alone: unless its section says who may give them, by a token that nobody else has.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from pydantic import ValidationError

from tsched.agent import config as agent
from tsched.config import complaint
from tsched.errors import Invalid
from tsched.orchestrator.agent_link import AgentCredentials
from tsched.orchestrator.config import Config

STATE = "tsched-agent.json"


@dataclass(frozen=True, slots=True)
class Embedded:
    """Where the agent is, by group and node, and what it is shown."""

    addresses: dict[str, dict[str, str]]
    credentials: AgentCredentials

    @property
    def address(self) -> str:
        return next(address for nodes in self.addresses.values() for address in nodes.values())


@asynccontextmanager
async def embedded(config: Config, shown: AgentCredentials) -> AsyncIterator[Embedded | None]:
    """Serve the agent until the body ends; None where the config wants none.

    Args:
        shown: what other agents are shown, and this one too where its section says who may give orders.

    Raises:
        Invalid: its section makes no sense, no node is left for it, or its address is in use.
    """
    if not config.server.agent:
        yield None
        return
    from tsched.agent.server import serve

    settings = agent_config(config)
    places = own_places(config, settings.node)
    credentials = shown
    if not settings.orchestrator.token_sha256 and not settings.orchestrator.common_name:
        token = secrets.token_hex(32)
        only = agent.Orchestrator(token_sha256=hashlib.sha256(token.encode()).hexdigest())
        settings = settings.model_copy(update={"orchestrator": only})
        credentials = replace(shown, token=token)
    if settings.tls is None:
        credentials = AgentCredentials(credentials.token)
    async with serve(settings) as running:
        yield Embedded({group: dict.fromkeys(nodes, running.address) for group, nodes in places.items()}, credentials)


def agent_config(config: Config) -> agent.Config:
    """Section [agent]; what it keeps is beside the log, where it does not say otherwise. Raises `Invalid`."""
    section = {"state": str(config.server.log.parent / STATE)} | config.agent
    try:
        return agent.Config.model_validate(section)
    except ValidationError as error:
        raise Invalid(f"agent.{complaint(error)}") from None


def own_places(config: Config, node: str) -> dict[str, list[str]]:
    """The nodes without an address, by group: they are this host's. Raises `Invalid` where they cannot be."""
    found: dict[str, list[str]] = {}
    for name, group in config.groups.items():
        for each, address in group.nodes.items():
            if address:
                continue
            if each != node:
                raise Invalid(
                    f"groups.{name}.nodes: node {each!r} has no address, and the embedded agent is node {node!r}: "
                    "give that node its agent's address, or name the embedded one's node in agent.node"
                )
            found.setdefault(name, []).append(each)
    if not found:
        raise Invalid("server.agent: every node has an address already: leave one out, or take no embedded agent")
    return found
