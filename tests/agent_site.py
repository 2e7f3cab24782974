"""Agents and connections to them for tests, all in this process unless a test starts a program."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import grpc

from tsched.agent.config import Config
from tsched.agent.server import RunningAgent, serve
from tsched.backends import Backend
from tsched.backends.fake import FakeBackend
from tsched.backends.process import ProcessBackend, SignalFreezer
from tsched.llmd import agent_pb2 as llmd
from tsched.orchestrator.agents import AgentBackend
from tsched.rpc.v1 import agent_pb2 as own
from tsched.rpc.v1 import worker_pb2 as pb

PATIENCE_S = 30

# Environments are seen by every agent of this host, those of other runs of these tests included.
A, B, C = (f"{name}-{uuid4().hex[:8]}" for name in "abc")

LLMD = "/snapshot_agent.v1alpha1.SnapshotAgentService/"
OWN = "/tsched.v1.Agent/"

ANSWERS: Mapping[str, Any] = {
    LLMD + "Snapshot": llmd.SnapshotResponse,
    LLMD + "Restore": llmd.RestoreResponse,
    LLMD + "GetOperation": llmd.GetOperationResponse,
    LLMD + "Status": llmd.StatusResponse,
    OWN + "Describe": own.Description,
    OWN + "Carry": pb.Answer,
    OWN + "Register": pb.Done,
    OWN + "Unregister": pb.Done,
}


class Client:
    """Calls one agent by hand."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel

    async def call(
        self, method: str, request: Any, metadata: tuple[tuple[str, str], ...] = (), timeout_s: float = PATIENCE_S
    ) -> Any:
        call: Any = self.channel.unary_unary(method, type(request).SerializeToString, ANSWERS[method].FromString)
        return await call(request, metadata=metadata, timeout=timeout_s)

    async def snapshot(self, job: str, group: str = "g", **more: Any) -> str:
        request = llmd.SnapshotRequest(job_id=job, group=group, **more)
        return str((await self.call(LLMD + "Snapshot", request)).operation_id)

    async def restore(self, job: str, group: str = "g", **more: Any) -> str:
        request = llmd.RestoreRequest(job_id=job, group=group, **more)
        return str((await self.call(LLMD + "Restore", request)).operation_id)

    async def operation(self, id: str) -> llmd.GetOperationResponse:
        found: llmd.GetOperationResponse = await self.call(
            LLMD + "GetOperation", llmd.GetOperationRequest(operation_id=id)
        )
        return found

    async def ended(self, id: str) -> llmd.GetOperationResponse:
        """The operation, once it is not under way any more."""
        found = await self.operation(id)

        async def over() -> bool:
            nonlocal found
            found = await self.operation(id)
            return found.status != llmd.OPERATION_STATUS_PENDING

        await until(over, f"operation {id} ends")
        return found

    async def done(self, id: str) -> llmd.GetOperationResponse:
        found = await self.ended(id)
        assert found.status == llmd.OPERATION_STATUS_COMPLETE, found.error
        return found

    async def states(self) -> dict[str, str]:
        said = await self.call(LLMD + "Status", llmd.StatusRequest())
        return {each.job_id: llmd.JobState.Name(each.state).removeprefix("JOB_STATE_") for each in said.job_statuses}

    async def carry(self, kind: pb.Kind.ValueType, op: int, job: str = "a", token: int = 1, **more: Any) -> pb.Answer:
        values = {"group": "g", "node": "0", **more}
        answer: pb.Answer = await self.call(OWN + "Carry", pb.Order(kind=kind, op=op, job=job, token=token, **values))
        return answer

    async def describe(self) -> own.Description:
        found: own.Description = await self.call(OWN + "Describe", own.DescribeRequest())
        return found


@asynccontextmanager
async def client(address: str, credentials: grpc.ChannelCredentials | None = None) -> AsyncIterator[Client]:
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1)]
    if credentials is None:
        channel = grpc.aio.insecure_channel(address, options=options)
    else:
        channel = grpc.aio.secure_channel(address, credentials, options=options)
    async with channel:
        yield Client(channel)


@asynccontextmanager
async def agent(
    folder: Path, backend: Backend | None = None, *, name: str = "agent", **settings: Any
) -> AsyncIterator[RunningAgent]:
    """An agent on a socket in the folder; without a backend it has processes, which are frozen by signals."""
    chosen = backend or ProcessBackend(freezer=lambda tree: SignalFreezer())
    config = Config.model_validate(
        {"listen": f"unix:{folder}/{name}.sock", "state": f"{folder}/{name}.json"} | settings
    )
    async with serve(config, backends={"": chosen}) as running:
        yield running


class Rig:
    """For `check_backend`: a fake device behind an agent, whose jobs are in this process."""

    suspendable = True

    def __init__(self, backend: Backend, fake: FakeBackend) -> None:
        self.park, self.restore, self.discard = backend.park, backend.restore, backend.discard
        self.probe, self.sizes = backend.probe, backend.sizes
        self.allocate, self.work, self.contents, self.kill = fake.allocate, fake.work, fake.contents, fake.kill


def behind(*addresses: str, group: str = "g") -> AgentBackend:
    """The backend whose nodes "0", "1" and so on are these agents."""
    return AgentBackend({group: {str(number): address for number, address in enumerate(addresses)}})


async def until(condition: Callable[[], bool | Awaitable[bool]], what: str) -> None:
    """Wait for what somebody else makes true."""
    with anyio.move_on_after(PATIENCE_S):
        while True:
            met = condition()
            if met if isinstance(met, bool) else await met:
                return
            await anyio.sleep(0.005)
    raise AssertionError(f"never: {what}")
