"""The scheduler's side of the worker channel: serves worker processes, and gives them the scheduler's orders.

    hub = WorkerHub()
    async with Scheduler(groups, backend=hub.backend) as scheduler, hub.serve(scheduler, "unix:/run/tsched.sock"):
        ...

A worker's word becomes a call of the scheduler's public methods, and nothing here decides about turns. Needs asyncio.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from tsched.errors import Invalid, MissingExtra
from tsched.rpc.address import Address, check_local, clear_way, parse
from tsched.rpc.attendance import Attendance
from tsched.rpc.hub_backend import HubBackend
from tsched.rpc.limits import METHOD, SERVER
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

    @asynccontextmanager
    async def serve(self, scheduler: Scheduler, address: str, *, insecure: bool = False) -> AsyncIterator[str]:
        """Take workers in at `address` until the body ends; yields the address, with the port that was chosen for 0.

        What workers hold and wait for is left as it is at the end, for the same hub to serve again, or for the next
        scheduler with this one's journal.

        Raises:
            Invalid: the address is malformed, in use, or open to other hosts without `insecure`; it serves already.
        """
        _check_loop()
        if self._attendance.is_open:
            raise Invalid("this hub serves already: make another one, or end that first")
        place = parse(address)
        check_local(place, insecure)
        server = self._server()
        bound = _bind(server, place)
        self._attendance.open(scheduler)
        try:
            await server.start()
            yield str(bound)
        finally:
            self._attendance.close()
            self._reception.close()
            await server.stop(STOP_S)
            await self._reception.ended()
            if bound.path:
                with suppress(FileNotFoundError):
                    os.unlink(bound.path)

    def _server(self) -> grpc.aio.Server:
        server = grpc.aio.server(options=SERVER)
        service, method = METHOD.strip("/").split("/")
        handler = grpc.stream_stream_rpc_method_handler(
            self._reception.attach,
            request_deserializer=pb.FromWorker.FromString,
            response_serializer=pb.ToWorker.SerializeToString,
        )
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
        return server


def _check_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        raise Invalid("gRPC's server runs under asyncio alone: take anyio's asyncio backend") from None


def _bind(server: grpc.aio.Server, address: Address) -> Address:
    """Open the socket; one with a path is its owner's alone."""
    if address.path:
        clear_way(address)
    before = os.umask(0o177)
    try:
        port = server.add_insecure_port(address.target)
    except RuntimeError as error:
        raise Invalid(f"address {address} cannot be served: {error}") from error
    finally:
        os.umask(before)
    return address if address.path else Address(host=address.host, port=port)
