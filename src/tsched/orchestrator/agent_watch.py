"""Whether the agents can be reached, and whose processes have ended: what a scheduler must hear of them.

A node whose agent is away for longer than the grace closes its group, and opens it when the agent is back. A node that
somebody else closed, such as an operator, is left alone. Only jobs of the protocol without heartbeats are given up when
all their processes have ended: the others' clients tell by themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Protocol, Self

from tsched.errors import BackendError, TschedError
from tsched.orchestrator.line import CLIENT
from tsched.orchestrator.remote_agent import Agent
from tsched.rpc.background import Background
from tsched.rpc.v1 import agent_pb2 as pb
from tsched.scheduler import Scheduler

BEAT_S, GRACE_S, ANSWER_S = 5.0, 3.0, 5.0
AWAY = "agent at "
_LOSSES = "/tsched.v1.Agent/Losses"


class Agents(Protocol):
    """The agents by address, and which nodes are at which."""

    agents: dict[str, Agent]
    nodes: dict[tuple[str, str], str]


class AgentWatch:
    """Watches all agents of a backend until it is left; an async context manager. Needs asyncio.

    Args:
        beat_s: how often an agent is asked whether it is there.
        grace_s: how long it may be away before its nodes are lost.
    """

    def __init__(
        self, scheduler: Scheduler, backend: Agents, *, beat_s: float = BEAT_S, grace_s: float = GRACE_S
    ) -> None:
        self._scheduler, self._backend = scheduler, backend
        self._beat_s, self._grace_s = beat_s, grace_s
        self._tasks: list[asyncio.Task[None]] = []
        self._background = Background()
        self._said: dict[str, pb.Description] = {}
        self._away: dict[str, str] = dict.fromkeys(backend.agents, "not asked yet")

    @property
    def away(self) -> Mapping[str, str]:
        """The agents that do not answer, by address, each with the reason. Empty is ready."""
        return dict(self._away)

    def why_away(self, group: str, node: str) -> str:
        """Why this node's agent does not answer; empty where it does, or there is none."""
        address = self._backend.nodes.get((group, node), "")
        why = self._away.get(address)
        return "" if why is None else _reason(address, why)

    async def __aenter__(self) -> Self:
        for address in self._backend.agents:
            self._tasks.append(asyncio.ensure_future(self._attend(address)))
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _attend(self, address: str) -> None:
        """Hear its losses, and ask whether it is there: at every beat, and when the stream of losses breaks."""
        clock = asyncio.get_running_loop()
        since = clock.time()
        agent = self._backend.agents[address]
        listening: asyncio.Task[None] | None = None
        try:
            while True:
                try:
                    self._said[address] = await agent.describe(ANSWER_S)
                    self._away.pop(address, None)
                    since = clock.time()
                except BackendError as error:
                    self._away[address] = str(error)
                if address not in self._away or clock.time() - since >= self._grace_s:
                    await self._settle(address)
                if (listening is None or listening.done()) and not agent.foreign and address not in self._away:
                    listening = asyncio.ensure_future(self._listen(agent))
                await self._pause(address, listening)
        finally:
            if listening is not None:
                listening.cancel()
                await asyncio.gather(listening, return_exceptions=True)

    async def _pause(self, address: str, listening: asyncio.Task[None] | None) -> None:
        if address in self._away:
            await asyncio.sleep(min(self._beat_s, self._grace_s / 4))
        elif listening is None:
            await asyncio.sleep(self._beat_s)
        else:
            await asyncio.wait([listening], timeout=self._beat_s)
            if listening.done():
                await asyncio.sleep(self._grace_s / 20)

    async def _settle(self, address: str) -> None:
        """What the scheduler holds of the agent's nodes becomes what is seen."""
        why = self._away.get(address)
        groups = self._scheduler.status().groups
        for group, node in [place for place, at in self._backend.nodes.items() if at == address]:
            lost = groups[group].lost.get(node) if group in groups else ""
            with suppress(TschedError):  # a log that cannot be written now, say: it is tried again at the next beat
                if why is not None and lost is None:
                    await self._scheduler.node_lost(group, node, _reason(address, why))
                elif why is None and lost is not None and lost.startswith(AWAY):
                    await self._scheduler.node_returned(group, node)

    async def _listen(self, agent: Agent) -> None:
        with suppress(BackendError):
            async for loss in agent.link.listen(_LOSSES, pb.LossesRequest(), pb.JobLoss, ANSWER_S):
                self._background.start(self._lose(loss))

    async def _lose(self, loss: pb.JobLoss) -> None:
        if self._heartless(loss.job) and not await self._lives(loss.job) and self._heartless(loss.job):
            with suppress(TschedError):
                await self._scheduler.lose_job(loss.job, loss.reason)

    def _heartless(self, job: str) -> bool:
        """Whether the job holds or waits by the protocol that has no heartbeats."""
        client = CLIENT + job
        for group in self._scheduler.status().groups.values():
            if group.holder is not None and group.holder.client == client:
                return True
            if any(waiter.client == client for waiter in group.waiters):
                return True
        return False

    async def _lives(self, job: str) -> bool:
        """Whether some agent knows a living process of the job."""
        await asyncio.gather(*map(self._look, self._backend.agents))
        return any(job in _living(said.jobs) for said in self._said.values())

    async def _look(self, address: str) -> None:
        with suppress(BackendError):
            self._said[address] = await self._backend.agents[address].describe(ANSWER_S)


def _living(jobs: Iterable[pb.AgentJob]) -> set[str]:
    return {each.job for each in jobs if each.pids}


def _reason(address: str, why: str) -> str:
    return why if why.startswith(AWAY) else f"{AWAY}{address}: {why}"
