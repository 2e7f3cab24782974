"""What a worker and its scheduler say to each other: questions until they are answered, and the leases that came of it.

Each question is repeated over every new stream until its answer has come. Nothing here knows what a state is: orders
are handed on.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from itertools import count
from typing import Any

from tsched.errors import AcquireRefused, ChannelClosed, Invalid, TschedError
from tsched.rpc.address import Address
from tsched.rpc.limits import MAX_MESSAGE_BYTES
from tsched.rpc.link import Link
from tsched.rpc.v1 import worker_pb2 as pb
from tsched.rpc.wire import as_error
from tsched.rpc.worker_lease import WorkerLease


class Call:
    """One question to the scheduler, until it is answered."""

    __slots__ = ("_over", "error", "lease", "message", "reply")

    def __init__(self, message: pb.FromWorker) -> None:
        self.message = message
        self.reply: pb.Reply | None = None
        self.lease: WorkerLease | None = None
        self.error: TschedError | None = None
        self._over = threading.Event()

    def answer(self, reply: pb.Reply | None, error: TschedError | None = None) -> None:
        self.reply, self.error = reply, error
        self._over.set()

    def wait(self, timeout_s: float | None) -> bool:
        return self._over.wait(timeout_s)


class Dialogue:
    """One worker's side of it; any thread may ask."""

    def __init__(self, address: Address, hello: pb.Hello, obey: Callable[[pb.Order], None], timeout_s: float) -> None:
        self._hello, self._obey = hello, obey
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._numbers = count(1)
        self._calls: dict[int, Call] = {}
        self._leases: dict[int, WorkerLease] = {}
        self._named: list[int] = []
        self.error: TschedError | None = None
        self._link = Link(
            address,
            hello=self._say_hello,
            repeat=self._unanswered,
            take=self._take,
            failed=self.fail,
            timeout_s=timeout_s,
        )

    def start(self) -> None:
        """Connect; raises what `Link.start` does."""
        self._link.start()

    def send(self, message: pb.FromWorker) -> None:
        """Say what needs no answer, if there is a stream."""
        self._link.send(message)

    def close(self, error: TschedError) -> None:
        """End the connection; what is asked, now and later, ends with `error`."""
        self.fail(error)
        self._link.close()

    def forget_calls(self) -> None:
        """Leave who waits for an answer waiting."""
        with self._lock:
            self._calls.clear()

    def forget(self, lease: WorkerLease) -> None:
        """The lease was given back."""
        with self._lock:
            self._leases.pop(lease.id, None)

    def leases(self) -> list[WorkerLease]:
        with self._lock:
            return list(self._leases.values())

    def ask(self, message: pb.FromWorker, timeout_s: float | None, what: str) -> Call:
        """Send, and wait for the reply, over as many streams as it takes; a call that is given up is withdrawn."""
        self.check_usable()
        call = Call(message)
        number = next(self._numbers)
        body: Any = getattr(message, message.WhichOneof("body") or "")
        body.call = number
        if message.ByteSize() > MAX_MESSAGE_BYTES:
            raise Invalid(f"{what}: the message has more than {MAX_MESSAGE_BYTES} bytes; name fewer groups")
        with self._lock:
            self._calls[number] = call
        try:
            self.check_usable()
            self._link.send(message)
            if not call.wait(timeout_s):
                raise AcquireRefused(f"{what} did not come within {timeout_s:g} s", "timed_out")
        except BaseException:
            self._withdraw(number, call)
            raise
        if call.error is not None:
            raise call.error
        assert call.reply is not None
        if call.reply.HasField("failure"):
            raise as_error(call.reply.failure)
        return call

    def _withdraw(self, number: int, call: Call) -> None:
        with self._lock:
            self._calls.pop(number, None)
            if call.lease is not None and call.lease.unclaim():
                self._leases.pop(call.lease.id, None)
        self._link.send(pb.FromWorker(cancel=pb.Cancel(call=number)))

    def check_usable(self) -> None:
        """Raises why nothing can be asked: this process was forked, or the connection has ended."""
        if os.getpid() != self._pid:
            raise ChannelClosed(
                f"worker {self._hello.client!r} belongs to process {self._pid}, from which this one was forked: "
                "start it anew, and connect there"
            )
        if self.error is not None:
            raise self.error

    # --------------------------------------------------- from the link's thread

    def _say_hello(self) -> pb.Hello:
        hello = pb.Hello()
        hello.CopyFrom(self._hello)
        with self._lock:
            self._named = list(self._calls)
            hello.calls.extend(self._named)
            hello.held.extend(lease.id for lease in self._leases.values() if lease.groups)
        return hello

    def _unanswered(self) -> list[pb.FromWorker]:
        """What is said after Hello: all calls again, and which of those in Hello were given up since."""
        with self._lock:
            given_up = [pb.FromWorker(cancel=pb.Cancel(call=n)) for n in self._named if n not in self._calls]
            return given_up + [call.message for call in self._calls.values()]

    def _take(self, message: pb.ToWorker) -> None:
        match message.WhichOneof("body"):
            case "reply":
                self._replied(message.reply)
            case "changed":
                self._change(message.changed)
            case "order":
                self._obey(message.order)
            case _:
                pass  # a message of a later version

    def _replied(self, reply: pb.Reply) -> None:
        with self._lock:
            call = self._calls.pop(reply.call, None)
            unwanted = call is None and reply.HasField("grant") and reply.grant.lease not in self._leases
            if call is not None and reply.HasField("grant"):
                call.lease = self._granted(reply.grant, call.message.acquire)
        if call is not None:
            call.answer(reply)
        elif unwanted:
            self._link.send(pb.FromWorker(cancel=pb.Cancel(call=reply.call)))

    def _granted(self, grant: pb.Grant, acquire: pb.Acquire) -> WorkerLease:
        """The lease that the request became; each call that it answers has a claim on it."""
        lease = self._leases.get(grant.lease)
        if lease is None:
            lease = WorkerLease(grant, self._hello.job, self._hello.client, acquire.request)
            self._leases[grant.lease] = lease
        lease.claims += 1
        return lease

    def _change(self, change: pb.LeaseChanged) -> None:
        lease = self._leases.get(change.lease)
        if lease is not None:
            lease.change(change)
            if not lease.groups:
                self._leases.pop(change.lease, None)

    def fail(self, error: TschedError) -> None:
        """No more replies come: everything that waits or is held ends with this."""
        with self._lock:
            if self.error is None:
                self.error = error
            calls, self._calls = self._calls, {}
            leases, self._leases = self._leases, {}
        for call in calls.values():
            call.answer(None, error)
        for lease in leases.values():
            lease.lose(str(error))
