"""The service `tsched.v1.Agent`: an orchestrator's orders, each answered when it has had its effect.

What a backend says went wrong is an answer. A status says that the call itself was wrong, or not this caller's.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc

from tsched.agent.access import Access
from tsched.agent.desk import Desk
from tsched.agent.devices import Devices
from tsched.agent.state_file import Key
from tsched.agent.statuses import answering, streaming
from tsched.backends import Order
from tsched.backends.moves import give
from tsched.errors import BackendError, Invalid
from tsched.rpc.limits import VERSION, check_name, check_size
from tsched.rpc.v1 import agent_pb2 as agent
from tsched.rpc.v1 import worker_pb2 as pb
from tsched.rpc.wire import MOVES, failure, order_of, presence_message, process_of, sizes_message

NAME = "tsched.v1.Agent"
# So that what an agent says of itself fits into a message.
_PIDS_TOLD = 64


class AgentService:
    """The handlers."""

    def __init__(self, desk: Desk, devices: Devices, access: Access, groups: list[str]) -> None:
        self._desk, self._devices, self._access, self._groups = desk, devices, access, groups

    def handler(self) -> Any:
        """What a server is given."""
        return grpc.method_handlers_generic_handler(
            NAME,
            {
                "Describe": grpc.unary_unary_rpc_method_handler(
                    answering(self.describe), agent.DescribeRequest.FromString, agent.Description.SerializeToString
                ),
                "Carry": grpc.unary_unary_rpc_method_handler(
                    answering(self.carry), pb.Order.FromString, pb.Answer.SerializeToString
                ),
                "Losses": grpc.unary_stream_rpc_method_handler(
                    streaming(self.losses), agent.LossesRequest.FromString, agent.JobLoss.SerializeToString
                ),
                "Register": grpc.unary_unary_rpc_method_handler(
                    answering(self.register), agent.RegisterProcess.FromString, pb.Done.SerializeToString
                ),
                "Unregister": grpc.unary_unary_rpc_method_handler(
                    answering(self.unregister), agent.RegisterProcess.FromString, pb.Done.SerializeToString
                ),
            },
        )

    async def describe(self, request: agent.DescribeRequest, context: Any) -> agent.Description:
        self._access.orders(context)
        return agent.Description(
            version=VERSION,
            node=self._desk.node,
            groups=self._groups,
            jobs=[await self._job(key) for key in self._desk.jobs()],
            devices=[
                agent.Device(id=each.id, used_bytes=each.used_bytes, total_bytes=each.total_bytes)
                for each in await self._devices.figures()
            ],
        )

    async def carry(self, message: pb.Order, context: Any) -> pb.Answer:
        """Blocks until the order has had its effect; a caller that is gone does not undo it."""
        self._access.orders(context)
        try:
            order = _checked(message)
            answer = await self._answer(message, order)
        except Exception as error:  # a backend is foreign code, and the orchestrator must hear of whatever it raises
            known = isinstance(error, BackendError | Invalid)
            told = error if known else BackendError(f"{type(error).__name__}: {error}")
            answer = pb.Answer(failure=failure(told))
        answer.number = message.number
        return answer

    async def losses(self, request: agent.LossesRequest, context: Any) -> AsyncIterator[agent.JobLoss]:
        self._access.orders(context)
        await context.send_initial_metadata(())  # so that the caller knows that it is listening
        async for loss in self._desk.losses.listen():
            yield agent.JobLoss(job=loss.job, group=loss.group, reason=loss.reason)

    async def register(self, message: agent.RegisterProcess, context: Any) -> pb.Done:
        key = self._registration(message, context)
        mover = self._desk.stock.processes_of(message.group)
        if mover is None:
            raise Invalid(f"group {message.group!r} is not moved by its processes here: register none")
        found = self._desk.roll.check(key, process_of(message.process))
        await mover.register(message.group, self._desk.node, message.job, [found])
        self._desk.losses.watch(key)
        return pb.Done()

    async def unregister(self, message: agent.RegisterProcess, context: Any) -> pb.Done:
        key = self._registration(message, context)
        mover = self._desk.stock.processes_of(message.group)
        if mover is not None:
            mover.unregister(message.group, self._desk.node, message.job, process_of(message.process))
        if not self._desk.roll.knows(key):
            self._desk.losses.forget(key)
        return pb.Done()

    def _registration(self, message: agent.RegisterProcess, context: Any) -> Key:
        self._access.registers(context)
        check_name("job", message.job)
        check_name("group", message.group, empty=True)
        return message.group, message.job

    async def _job(self, key: Key) -> agent.AgentJob:
        pids = [process.pid for process in self._desk.roll.living(key)[:_PIDS_TOLD]]
        return agent.AgentJob(group=key[0], job=key[1], standing=await self._desk.standing(key), pids=pids)

    async def _answer(self, message: pb.Order, order: Order) -> pb.Answer:
        kind = MOVES.get(message.kind)
        if kind is not None:
            await give(self._desk, kind, order)
            return pb.Answer(done=pb.Done())
        place = order.group, order.node, order.job
        if message.kind == pb.KIND_PROBE:
            seen = await self._desk.probe(*place, deadline_us=max(0, message.deadline_us))
            return pb.Answer(presence=presence_message(seen))
        if message.kind == pb.KIND_SIZES:
            return pb.Answer(sizes=sizes_message(await self._desk.sizes(*place)))
        raise BackendError(f"this agent knows no order of kind {message.kind}: install the same tsched on both sides")


def _checked(message: pb.Order) -> Order:
    check_name("group", message.group)
    check_name("node", message.node)
    check_name("job", message.job)
    check_size("size_bytes", message.size_bytes)
    return order_of(message)
