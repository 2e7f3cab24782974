"""The calls of llm-d's protocol to one agent. Nothing here waits for what was begun."""

from __future__ import annotations

from tsched.backends import Order
from tsched.costs import MoveKind
from tsched.errors import BackendError
from tsched.llmd import agent_pb2 as pb
from tsched.orchestrator.agent_link import AgentLink, Unreachable

SERVICE = "/snapshot_agent.v1alpha1.SnapshotAgentService/"
ANSWER_S = 5.0


class ForeignCalls:
    """Each of them one call; raises as `AgentLink.call` does, and `BackendError` for nonsense."""

    def __init__(self, link: AgentLink) -> None:
        self.link = link

    async def begin(self, kind: MoveKind, order: Order) -> str:
        """The id of the operation that was begun."""
        if kind == "park":
            snapshot = pb.SnapshotRequest(job_id=order.job, group=order.group)
            said = await self.link.call(SERVICE + "Snapshot", snapshot, pb.SnapshotResponse, ANSWER_S)
            return self._named(said.operation_id)
        restore = pb.RestoreRequest(job_id=order.job, group=order.group)
        done = await self.link.call(SERVICE + "Restore", restore, pb.RestoreResponse, ANSWER_S)
        return self._named(done.operation_id)

    async def operation(self, id: str) -> pb.GetOperationResponse | None:
        """How it stands; None where the agent cannot be reached now."""
        try:
            request = pb.GetOperationRequest(operation_id=id)
            return await self.link.call(SERVICE + "GetOperation", request, pb.GetOperationResponse, ANSWER_S)
        except Unreachable:
            return None

    async def status(self, timeout_s: float = ANSWER_S) -> pb.StatusResponse:
        return await self.link.call(SERVICE + "Status", pb.StatusRequest(), pb.StatusResponse, timeout_s)

    async def state(self, job: str) -> int | None:
        """How the job stands; None where the agent does not know it."""
        said = await self.status()
        return next((each.state for each in said.job_statuses if each.job_id == job), None)

    def _named(self, operation: str) -> str:
        if not operation:
            raise BackendError(f"{self.link} answers nonsense: an operation without an id")
        return operation
