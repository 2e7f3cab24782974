"""From the `backend_config` of an llm-d order to what moves the job here."""

from __future__ import annotations

from tsched.agent.channel_mover import Asleep, ChannelMover
from tsched.agent.endpoint_mover import EndpointMover
from tsched.agent.losses import Losses
from tsched.agent.roll import Roll
from tsched.agent.stock import Stock
from tsched.backends import Backend
from tsched.errors import BackendError, Invalid
from tsched.llmd import agent_pb2 as pb
from tsched.rpc.limits import MAX_TAGS
from tsched.rpc.processes import process_of_pid


class LlmdMovers:
    """Chooses; the choice holds for the job until an order chooses anew."""

    def __init__(
        self, node: str, stock: Stock, roll: Roll, losses: Losses, asleep: Asleep, endpoints: EndpointMover
    ) -> None:
        self._node, self._stock, self._roll, self._losses = node, stock, roll, losses
        self._asleep, self._endpoints = asleep, endpoints

    async def of(self, group: str, job: str, config: pb.BackendConfig) -> Backend:
        """Raises `BackendError`, or `Invalid`, for what this agent cannot do."""
        match config.WhichOneof("backend"):
            case "app_endpoint":
                await self._endpoints.tell(group, self._node, job, config.app_endpoint)
                return self._endpoints
            case "app_channel":
                return self._channel(job, config.app_channel)
            case "direct_memory" | "memory_regions" as kind:
                raise BackendError(
                    f"backend {kind!r} is not offered here: use cuda, app_endpoint or app_channel, or let the job "
                    "register its tensors with tsched's client"
                )
            case "cuda":
                return await self._processes(group, job, list(config.cuda.explicit_target.pids))
            case _:
                return self._stock.of(group)

    def _channel(self, job: str, config: pb.AppChannelConfig) -> ChannelMover:
        """The workload must be there."""
        if len(config.tags) > MAX_TAGS:
            raise Invalid(f"an order has at most {MAX_TAGS} tags")
        self._asleep.workloads.of(job)
        return ChannelMover(self._asleep, config.mode, tuple(config.tags))

    async def _processes(self, group: str, job: str, pids: list[int]) -> Backend:
        if not pids:
            return self._stock.of(group)
        mover = self._stock.processes_of(group)
        if mover is None:
            raise BackendError(f"group {group!r} is not moved by its processes here: name no pids")
        found = [self._roll.check((group, job), process_of_pid(pid)) for pid in pids]
        await mover.register(group, self._node, job, found)
        self._losses.watch((group, job))
        return mover
