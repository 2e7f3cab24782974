"""The scheduler's side of the worker channel: serves worker processes, and gives them the scheduler's orders.

    hub = WorkerHub()
    async with Scheduler(groups, backend=hub.backend) as scheduler, hub.serve(scheduler, "unix:/run/tsched.sock"):
        ...

A worker's word becomes a call of the scheduler's public methods, and nothing here decides about turns. Needs asyncio.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tsched.errors import Invalid, MissingExtra
from tsched.rpc.address import check_local, parse
from tsched.rpc.attendance import Attendance
from tsched.rpc.gate import Gate, open_gate
from tsched.rpc.hub_backend import HubBackend
from tsched.rpc.limits import METHOD, SERVER
from tsched.rpc.listen import check_loop, listening
from tsched.rpc.reception import Reception
from tsched.rpc.worker_status import WorkerStatus
from tsched.scheduler import Scheduler

try:
    import grpc
except ImportError as missing:
    raise MissingExtra("the worker channel needs gRPC: pip install 'tsched[rpc]'") from missing

from tsched.rpc.v1 import worker_pb2 as pb

GRACE_S = 10.0
STOP_S = 0.2


class WorkerHub:
    """Knows the worker processes of one scheduler.

    Args:
        grace_s: how long a worker whose connection broke, or that was there before a restart, may take to come back
            before its job is given up.
        suspendable: whether every worker's backend can park at any moment; workers that cannot are then refused on
            groups that are suspendable.
    """

    def __init__(self, *, grace_s: float = GRACE_S, suspendable: bool = False) -> None:
        self._attendance = Attendance(grace_s, suspendable)
        self._reception = Reception(self._attendance)
        self.backend = HubBackend(self._attendance, suspendable=suspendable)

    @property
    def workers(self) -> tuple[WorkerStatus, ...]:
        """The workers that are connected, or may come back."""
        return tuple(session.status() for session in self._attendance.roster.all())

    @property
    def handler(self) -> grpc.GenericRpcHandler[pb.FromWorker, pb.ToWorker]:
        """The worker channel, for any `grpc.aio` server; it lets nobody in but while the hub attends a scheduler."""
        service, method = METHOD.strip("/").split("/")
        attach = grpc.stream_stream_rpc_method_handler(
            self._reception.attach,
            request_deserializer=pb.FromWorker.FromString,
            response_serializer=pb.ToWorker.SerializeToString,
        )
        return grpc.method_handlers_generic_handler(service, {method: attach})

    @asynccontextmanager
    async def attending(self, scheduler: Scheduler, gate: Gate = open_gate) -> AsyncIterator[None]:
        """Take workers in for this scheduler until the body ends, over whatever servers have the `handler`.

        What workers hold and wait for is left as it is at the end, for the same hub to serve again, or for the next
        scheduler with this one's journal. `gate` says who is let in.

        Raises:
            Invalid: it attends a scheduler already.
        """
        self._open(scheduler)
        self._reception.gate = gate
        try:
            yield
        finally:
            self._close()
            await self._reception.ended()

    @asynccontextmanager
    async def serve(self, scheduler: Scheduler, address: str, *, insecure: bool = False) -> AsyncIterator[str]:
        """As `attending`, with a server of its own; yields its address, with the port that was chosen for 0.

        Raises:
            Invalid: the address is malformed, in use, or open to other hosts without `insecure`; it serves already.
        """
        check_loop()
        self._check_idle()
        place = parse(address)
        check_local(place, insecure)
        server = grpc.aio.server(options=SERVER)
        server.add_generic_rpc_handlers((self.handler,))
        with listening(server, place) as bound:
            self._open(scheduler)
            try:
                await server.start()
                yield str(bound)
            finally:
                self._close()
                await server.stop(STOP_S)
                await self._reception.ended()

    def _check_idle(self) -> None:
        if self._attendance.is_open:
            raise Invalid("this hub serves already: make another one, or end that first")

    def _open(self, scheduler: Scheduler) -> None:
        self._check_idle()
        self._attendance.open(scheduler)

    def _close(self) -> None:
        self._attendance.close()
        self._reception.close()
