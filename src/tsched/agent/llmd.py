"""llm-d's service `SnapshotAgentService`, over the same backends: operations with ids, and workloads on a channel.

Its orders have no tokens, and are obeyed as if they came from whoever gave the last order that had one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc

from tsched.agent.access import Access
from tsched.agent.desk import Desk, Standing
from tsched.agent.devices import Devices
from tsched.agent.llmd_movers import LlmdMovers
from tsched.agent.operations import Operation, Operations
from tsched.agent.statuses import answering, streaming
from tsched.agent.workloads import Workloads
from tsched.backends.moves import carry_out
from tsched.costs import MoveKind
from tsched.errors import BackendError, UnknownJob
from tsched.events import JobLost, MoveFailed
from tsched.llmd import agent_pb2 as pb
from tsched.model import SECOND_US
from tsched.rpc.limits import check_name

NAME = "snapshot_agent.v1alpha1.SnapshotAgentService"

Move = pb.SnapshotRequest | pb.RestoreRequest

_STATES: dict[Standing, pb.JobState.ValueType] = {
    Standing.RUNNING: pb.JOB_STATE_RUNNING,
    Standing.MOVING: pb.JOB_STATE_TRANSITIONING,
    Standing.PARKED: pb.JOB_STATE_SAVED,
    Standing.FAULTED: pb.JOB_STATE_FAULTED,
    Standing.GONE: pb.JOB_STATE_IDLE,
}
# A job may be in several groups, and is told of once: the first of these that one of them shows.
_GRAVEST = (
    pb.JOB_STATE_FAULTED,
    pb.JOB_STATE_TRANSITIONING,
    pb.JOB_STATE_RUNNING,
    pb.JOB_STATE_SAVED,
    pb.JOB_STATE_IDLE,
)


class LlmdService:
    """The handlers."""

    def __init__(
        self,
        desk: Desk,
        movers: LlmdMovers,
        workloads: Workloads,
        operations: Operations,
        devices: Devices,
        access: Access,
        timeout_s: float,
    ) -> None:
        self._desk, self._movers, self._workloads = desk, movers, workloads
        self._operations, self._devices, self._access = operations, devices, access
        self._timeout_us = round(timeout_s * SECOND_US)

    def handler(self) -> Any:
        """What a server is given."""
        return grpc.method_handlers_generic_handler(
            NAME,
            {
                "Snapshot": grpc.unary_unary_rpc_method_handler(
                    answering(self.snapshot), pb.SnapshotRequest.FromString, pb.SnapshotResponse.SerializeToString
                ),
                "Restore": grpc.unary_unary_rpc_method_handler(
                    answering(self.restore), pb.RestoreRequest.FromString, pb.RestoreResponse.SerializeToString
                ),
                "GetOperation": grpc.unary_unary_rpc_method_handler(
                    answering(self.operation),
                    pb.GetOperationRequest.FromString,
                    pb.GetOperationResponse.SerializeToString,
                ),
                "Status": grpc.unary_unary_rpc_method_handler(
                    answering(self.status), pb.StatusRequest.FromString, pb.StatusResponse.SerializeToString
                ),
                "WorkloadChannel": grpc.stream_stream_rpc_method_handler(
                    streaming(self.channel), pb.WorkloadMessage.FromString, pb.AgentCommand.SerializeToString
                ),
            },
        )

    async def snapshot(self, request: pb.SnapshotRequest, context: Any) -> pb.SnapshotResponse:
        return pb.SnapshotResponse(operation_id=self._begin("park", request, context).id)

    async def restore(self, request: pb.RestoreRequest, context: Any) -> pb.RestoreResponse:
        return pb.RestoreResponse(operation_id=self._begin("restore", request, context).id)

    async def operation(self, request: pb.GetOperationRequest, context: Any) -> pb.GetOperationResponse:
        self._access.orders(context)
        found = self._operations.get(request.operation_id)
        if found is None:
            raise UnknownJob(
                f"no operation {request.operation_id[:64]!r} is known here: it ended long ago, or never was"
            )
        return _operation_message(found)

    async def status(self, request: pb.StatusRequest, context: Any) -> pb.StatusResponse:
        self._access.orders(context)
        states: dict[str, list[pb.JobState.ValueType]] = {}
        for key in self._desk.jobs():
            states.setdefault(key[1], []).append(_STATES[await self._desk.standing(key)])
        return pb.StatusResponse(
            job_statuses=[
                pb.JobStatus(job_id=job, state=next(each for each in _GRAVEST if each in seen))
                for job, seen in states.items()
            ],
            accelerator_statuses=[
                pb.AcceleratorStatus(id=each.id, memory_used_bytes=each.used_bytes, memory_total_bytes=each.total_bytes)
                for each in await self._devices.figures()
            ],
        )

    async def channel(
        self, messages: AsyncIterator[pb.WorkloadMessage], context: Any
    ) -> AsyncIterator[pb.AgentCommand]:
        self._access.registers(context)
        async for command in self._workloads.attend(messages):
            yield command

    def _begin(self, kind: MoveKind, request: Move, context: Any) -> Operation:
        self._access.orders(context)
        check_name("job_id", request.job_id)
        check_name("group", request.group, empty=True)
        what = kind, request.SerializeToString(deterministic=True)
        return self._operations.begin(what, lambda operation: self._carry(kind, request, operation))

    async def _carry(self, kind: MoveKind, request: Move, operation: Operation) -> None:
        group, node, job = request.group, self._desk.node, request.job_id
        mover = await self._movers.of(group, job, request.backend_config)
        self._desk.assign(group, job, mover)
        before = await self._desk.probe(group, node, job, deadline_us=0)
        order = self._desk.fence.unnumbered(group, node, job)
        answer = await carry_out(self._desk, kind, order, self._timeout_us)
        if isinstance(answer, MoveFailed | JobLost):
            raise BackendError(answer.reason or f"job {job!r} was lost")
        after = await self._desk.probe(group, node, job, deadline_us=0)
        operation.device_bytes = before.resident_bytes if kind == "park" else after.resident_bytes
        operation.storage_bytes = after.parked_bytes


def _operation_message(operation: Operation) -> pb.GetOperationResponse:
    status = pb.OPERATION_STATUS_PENDING
    if operation.ended_s is not None:
        status = pb.OPERATION_STATUS_COMPLETE if operation.error is None else pb.OPERATION_STATUS_FAILED
    return pb.GetOperationResponse(
        status=status,
        storage_bytes=operation.storage_bytes,
        snapshot_device_bytes=operation.device_bytes,
        elapsed_ms=operation.elapsed_ms(asyncio.get_running_loop().time()),
        error=operation.error,
    )
