"""The backend whose devices are on other hosts: an order goes to the agent of its node, and blocks until it is done.

Agents that offer nothing but llm-d's protocol are driven by `foreign`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Self

from tsched.backends import Order, Presence, Sizes
from tsched.errors import BackendError
from tsched.orchestrator.agent_link import AgentCredentials, AgentLink
from tsched.orchestrator.agent_watch import AgentWatch
from tsched.orchestrator.remote_agent import Agent
from tsched.rpc.v1 import worker_pb2 as pb
from tsched.rpc.wire import presence_of, sizes_of

__all__ = ["AgentBackend", "AgentCredentials", "AgentWatch"]


class AgentBackend:
    """Gives a scheduler's orders to agents. An async context manager, for its connections' sake; needs asyncio.

    Args:
        addresses: of the agents, by group and node; one agent may serve several.
        credentials: what they are shown.
        own: what single ones are shown instead, by address.
        suspendable: whether their backends can park at any moment.
    """

    def __init__(
        self,
        addresses: Mapping[str, Mapping[str, str]],
        *,
        credentials: AgentCredentials | None = None,
        own: Mapping[str, AgentCredentials] | None = None,
        suspendable: bool = True,
    ) -> None:
        self.suspendable = suspendable
        self.nodes = {(group, node): at for group, nodes in addresses.items() for node, at in nodes.items() if at}
        shown = dict(own or {})
        self.agents = {at: Agent(AgentLink(at, shown.get(at, credentials))) for at in sorted(set(self.nodes.values()))}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End the connections; what the agents do goes on."""
        for each in self.agents.values():
            await each.close()

    def serves(self, group: str, node: str) -> bool:
        """Whether there is an agent for this node."""
        return (group, node) in self.nodes

    async def park(self, order: Order) -> None:
        await self._agent(order.group, order.node).move("park", order)

    async def restore(self, order: Order) -> None:
        await self._agent(order.group, order.node).move("restore", order)

    async def discard(self, order: Order) -> None:
        await self._agent(order.group, order.node).move("discard", order)

    async def probe(self, group: str, node: str, job: str, *, deadline_us: int) -> Presence:
        order = Order(0, group, node, job, 0)
        answer = await self._agent(group, node).ask(pb.KIND_PROBE, order, deadline_us, "presence")
        if isinstance(answer, pb.Answer):
            return presence_of(answer.presence)
        return await answer.probe(group, node, job, deadline_us=deadline_us)

    async def sizes(self, group: str, node: str, job: str) -> Sizes:
        answer = await self._agent(group, node).ask(pb.KIND_SIZES, Order(0, group, node, job, 0), 0, "sizes")
        return sizes_of(answer.sizes) if isinstance(answer, pb.Answer) else await answer.sizes(group, node, job)

    def _agent(self, group: str, node: str) -> Agent:
        address = self.nodes.get((group, node))
        if address is None:
            raise BackendError(f"there is no agent for {group}/{node}: name its address in groups.{group}.nodes")
        return self.agents[address]
