"""One worker, as the scheduler's side knows it: what it said of itself, holds, waits for, and was ordered.

It outlives the stream: what is sent while there is none is dropped, since the worker asks again when it comes back,
and orders that were not answered are repeated then.
"""

from __future__ import annotations

import asyncio
import random
from itertools import count

from tsched.backends import Order
from tsched.errors import BackendError
from tsched.lease import Lease
from tsched.rpc import processes
from tsched.rpc.stream import Stream
from tsched.rpc.v1 import worker_pb2 as pb
from tsched.rpc.wire import changed_message, failure, nothing, order_message, process_of
from tsched.rpc.worker_status import WorkerStatus

LOST_KEPT = 64

Place = tuple[str, str, str]


class Session:
    """A worker's standing with the scheduler, from its first Hello to its end.

    `local`: its process is of this host, and can be watched. `bereft`: its job was lost, and it lives on. `over`: it
    has left, or its process has ended.
    """

    def __init__(self, hello: pb.Hello, trusted: bool) -> None:
        self.client, self.job, self.group, self.node = hello.client, hello.job, hello.group, hello.node
        self.owner, self.weight = hello.owner, hello.weight
        self.state_bytes = hello.state_bytes if hello.HasField("state_bytes") else None
        self.turn_bytes = hello.turn_bytes if hello.HasField("turn_bytes") else None
        self.process = process_of(hello.process)
        self.local = trusted and processes.known(self.process)
        self.take_capabilities(hello.capabilities)
        self.stream: Stream | None = None
        self.leases: dict[int, Lease] = {}
        self.lost: dict[int, str] = {}
        self.calls: dict[int, asyncio.Task[None]] = {}
        self.granted: dict[int, int] = {}
        self.returning: dict[int, asyncio.Task[None]] = {}
        self.bereft = self.over = self.unmeasured = False
        self._error: BackendError | None = None
        self._orders: dict[int, tuple[pb.ToWorker, asyncio.Future[pb.Answer]]] = {}
        # An answer to an order of the scheduler before this one must meet none of these.
        self._numbers = count(random.SystemRandom().getrandbits(62))

    def __str__(self) -> str:
        return f"worker {self.client!r} of job {self.job!r} on {self.group}/{self.node}"

    @property
    def place(self) -> Place:
        return self.group, self.node, self.job

    def take_capabilities(self, capabilities: pb.Capabilities) -> None:
        self.moves, self.suspendable = capabilities.moves, capabilities.suspendable
        self.tags = tuple(capabilities.tags)

    def status(self) -> WorkerStatus:
        return WorkerStatus(
            self.client,
            self.job,
            self.group,
            self.node,
            self.process.pid,
            self.stream is not None,
            self.moves,
            tuple(self.leases),
            self.tags,
        )

    # ----------------------------------------------------------------- stream

    def attach(self, stream: Stream) -> None:
        """The worker is here, over this stream; what it was ordered before is repeated."""
        self.stream = stream
        for message, _ in self._orders.values():
            stream.send(message)

    def send(self, message: pb.ToWorker) -> None:
        if self.stream is not None:
            self.stream.send(message)

    def done(self, call: int) -> None:
        self.send(pb.ToWorker(reply=pb.Reply(call=call, done=pb.Done())))

    def failed(self, call: int, error: BaseException) -> None:
        self.send(pb.ToWorker(reply=pb.Reply(call=call, failure=failure(error))))

    # ----------------------------------------------------------------- leases

    def hold(self, lease: Lease, call: int | None = None) -> None:
        self.leases[lease.id] = lease
        if call is not None:
            self.granted[call] = lease.id
        lease.on_change = lambda: self.changed(lease)

    def changed(self, lease: Lease) -> None:
        """The lease was suspended, goes on, or ended."""
        if lease.lost_reason is not None:
            self.lost[lease.id] = lease.lost_reason
            while len(self.lost) > LOST_KEPT:
                del self.lost[next(iter(self.lost))]
        if not lease.groups:
            self.drop(lease)
        self.send(changed_message(lease))

    def drop(self, lease: Lease) -> None:
        """The lease is over."""
        lease.on_change = None
        if self.leases.pop(lease.id, None) is not None:
            self.granted = {call: number for call, number in self.granted.items() if number != lease.id}

    # ----------------------------------------------------------------- orders

    async def ask(self, kind: pb.Kind.ValueType, order: Order, deadline_us: int = 0) -> pb.Answer:
        """Have the worker carry out its share, and wait for its answer, also while it is away.

        Raises:
            BackendError: the worker is gone for good.
        """
        if self.over:
            return self._left(kind)
        number = next(self._numbers)
        message = order_message(number, kind, order, deadline_us)
        answer: asyncio.Future[pb.Answer] = asyncio.get_running_loop().create_future()
        self._orders[number] = message, answer
        self.send(message)
        try:
            return await answer
        finally:
            self._orders.pop(number, None)

    def answered(self, answer: pb.Answer) -> None:
        _, future = self._orders.get(answer.number, (None, None))
        if future is not None and not future.done():
            future.set_result(answer)

    def end(self, error: BackendError | None) -> None:
        """It does not come back: orders, now and later, fail with `error`, or are met where it left nothing behind."""
        self.over, self._error = True, error
        for task in (*self.calls.values(), *self.returning.values()):
            task.cancel()
        for lease in list(self.leases.values()):
            self.drop(lease)
        for message, future in self._orders.values():
            if future.done():
                continue
            if error is None:
                future.set_result(self._left(message.order.kind))
            else:
                future.set_exception(error)

    def _left(self, kind: pb.Kind.ValueType) -> pb.Answer:
        if self._error is not None:
            raise self._error
        return nothing(kind)
