"""Who carries an order out: the job's own worker processes where some of them move states, else the node's agent.

Where neither is, nothing moves: the job frees its memory by itself before it yields.
"""

from __future__ import annotations

from collections.abc import Mapping

from tsched.backends import Backend, Order, Presence, Sizes
from tsched.errors import ProcessGone
from tsched.rpc.hub_backend import HubBackend


class Both:
    """Orders for workers and agents.

    Args:
        hub: the workers' side.
        agents: what gives orders to agents.
        nodes: the nodes of each group on which there is one.
    """

    def __init__(self, hub: HubBackend, agents: Backend, nodes: Mapping[str, Mapping[str, str]]) -> None:
        self.suspendable = hub.suspendable and agents.suspendable
        self._hub, self._agents, self._nodes = hub, agents, nodes

    async def park(self, order: Order) -> None:
        if (backend := await self._mover(order.group, order.node, order.job)) is not None:
            await backend.park(order)

    async def restore(self, order: Order) -> None:
        if (backend := await self._mover(order.group, order.node, order.job)) is not None:
            await backend.restore(order)

    async def discard(self, order: Order) -> None:
        """An agent ends processes: not those of workers that look after their state, or have said goodbye."""
        place = (order.group, order.node, order.job)
        finished = self._hub.finished(place)
        try:
            moves = bool(await self._hub.movers(place))
        except ProcessGone:
            moves = False
        await self._hub.discard(order)
        if self._has_agent(order.group, order.node) and not moves and not finished:
            await self._agents.discard(order)

    async def probe(self, group: str, node: str, job: str, *, deadline_us: int) -> Presence:
        try:
            backend = await self._mover(group, node, job)
        except ProcessGone:
            backend = self._agents if self._has_agent(group, node) else self._hub
        if backend is None:
            return Presence()
        return await backend.probe(group, node, job, deadline_us=deadline_us)

    async def sizes(self, group: str, node: str, job: str) -> Sizes:
        backend = await self._mover(group, node, job)
        return Sizes(0) if backend is None else await backend.sizes(group, node, job)

    async def _mover(self, group: str, node: str, job: str) -> Backend | None:
        if await self._hub.movers((group, node, job)):
            return self._hub
        return self._agents if self._has_agent(group, node) else None

    def _has_agent(self, group: str, node: str) -> bool:
        return node in self._nodes.get(group, {})
