"""The worker's end of the stream, kept up: opened, read in a thread of its own, and opened again when it breaks.

It knows nothing of turns. What is sent while there is no stream is dropped; its owner repeats what matters when it is
asked to, at each new beginning.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from queue import SimpleQueue
from typing import Protocol, cast

from tsched.errors import ChannelClosed, MissingExtra, TschedError
from tsched.rpc.address import Address
from tsched.rpc.limits import CLIENT, METHOD, VERSION
from tsched.rpc.v1 import worker_pb2 as pb

try:
    import grpc
except ImportError as missing:
    raise MissingExtra("the worker channel needs gRPC: pip install 'tsched[rpc]'") from missing

from tsched.rpc.stream import CODE
from tsched.rpc.wire import as_error

BACKOFF_S = 0.02
MAX_BACKOFF_S = 1.0

# Statuses that no second attempt changes.
_FINAL = (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION)

Outbox = SimpleQueue[pb.FromWorker | None]


class Incoming(Protocol):
    """What gRPC gives for an open stream."""

    def __iter__(self) -> Iterator[pb.ToWorker]: ...

    def cancel(self) -> bool: ...


class Link:
    """One worker's connection.

    Args:
        hello: what is said first at each new beginning.
        repeat: what is said again after that.
        take: called for each message, in the link's thread; must not wait.
        failed: called once, when the connection cannot be kept up, with the reason.
        timeout_s: how long it may take to come into being, and to come back.
    """

    def __init__(
        self,
        address: Address,
        *,
        hello: Callable[[], pb.Hello],
        repeat: Callable[[], Iterable[pb.FromWorker]],
        take: Callable[[pb.ToWorker], None],
        failed: Callable[[TschedError], None],
        timeout_s: float,
    ) -> None:
        self._address, self._timeout_s = address, timeout_s
        self._hello, self._repeat, self._take, self._failed = hello, repeat, take, failed
        self._lock = threading.Lock()
        self._outbox: Outbox | None = None
        self._call: Incoming | None = None
        self._welcomed = threading.Event()
        self._over = threading.Event()
        self._error: TschedError | None = None
        self._last = "it answered nothing"
        self._thread = threading.Thread(target=self._run, name=f"tsched channel to {address}", daemon=True)

    def start(self) -> None:
        """Connect; raises `ChannelClosed` where nobody answers in time, or what the scheduler refused it with."""
        self._thread.start()
        self._welcomed.wait(self._timeout_s + 1)
        if self._error is not None:
            raise self._error
        if not self._welcomed.is_set():
            self.close()
            raise self._unreachable()

    def send(self, message: pb.FromWorker) -> None:
        with self._lock:
            if self._outbox is not None:
                self._outbox.put(message)

    def close(self) -> None:
        """End the stream, and the thread with it."""
        self._over.set()
        with self._lock:
            outbox, call = self._outbox, self._call
        if outbox is not None:
            outbox.put(None)
        if call is not None:
            call.cancel()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(5)

    def _run(self) -> None:
        try:
            self._keep_up()
        except Exception as error:  # whatever it is, who waits here must not wait for ever
            self._fail(ChannelClosed(f"the channel to {self._address} broke: {type(error).__name__}: {error}"))
            raise

    def _keep_up(self) -> None:
        give_up, backoff = time.monotonic() + self._timeout_s, BACKOFF_S
        while not self._over.is_set():
            error, welcomed = self._once(give_up)
            if welcomed:
                give_up, backoff = time.monotonic() + self._timeout_s, BACKOFF_S
            if self._over.is_set():
                return
            if error is not None:
                self._fail(error)
                return
            if time.monotonic() + backoff >= give_up:
                self._fail(self._unreachable())
                return
            self._over.wait(backoff)
            backoff = min(backoff * 2, MAX_BACKOFF_S)

    def _once(self, give_up: float) -> tuple[TschedError | None, bool]:
        """One stream until it breaks: what speaks against opening another, and whether this one was welcomed."""
        outbox: Outbox = SimpleQueue()
        patience = threading.Timer(max(0.01, give_up - time.monotonic()), self._interrupt)
        patience.daemon = True
        welcomed = False
        with grpc.insecure_channel(self._address.target, options=CLIENT) as channel:
            try:
                call = self._open(channel, outbox)
                patience.start()
                for message in call:
                    if welcomed:
                        self._take(message)
                        continue
                    if not message.HasField("welcome") or not 1 <= message.welcome.version <= VERSION:
                        return ChannelClosed(f"what listens at {self._address} does not speak as this tsched"), False
                    welcomed = True
                    patience.cancel()
                    self._begin(outbox)
                self._last = "it ended the stream"
            except grpc.RpcError as error:
                self._last = f"{error.code().name}: {error.details()}"
                return self._final(error), welcomed
            finally:
                patience.cancel()
                outbox.put(None)
                with self._lock:
                    self._outbox = self._call = None
        return None, welcomed

    def _open(self, channel: grpc.Channel, outbox: Outbox) -> Incoming:
        method = channel.stream_stream(
            METHOD,
            request_serializer=pb.FromWorker.SerializeToString,
            response_deserializer=pb.ToWorker.FromString,
        )
        outbox.put(pb.FromWorker(hello=self._hello()))
        call = cast(Incoming, method(iter(outbox.get, None)))
        with self._lock:
            self._call = call
        if self._over.is_set():
            call.cancel()
        return call

    def _begin(self, outbox: Outbox) -> None:
        """From here on what is sent is sent; what was asked before comes first."""
        with self._lock:
            self._outbox = outbox
            for message in self._repeat():
                outbox.put(message)
        self._welcomed.set()

    def _interrupt(self) -> None:
        with self._lock:
            if self._call is not None:
                self._call.cancel()

    def _final(self, error: grpc.RpcError) -> TschedError | None:
        """The error with which the scheduler refused this worker, if it did."""
        metadata = cast("Iterable[tuple[str, str]]", error.trailing_metadata() or ())
        for key, value in metadata:
            if key == CODE and error.code() in _FINAL:
                return as_error(pb.Failure(code=value, text=error.details() or ""))
        if error.code() is grpc.StatusCode.UNIMPLEMENTED:
            return ChannelClosed(f"what listens at {self._address} is no tsched scheduler: {error.details()}")
        return None

    def _fail(self, error: TschedError) -> None:
        self._error = error
        self._over.set()
        self._failed(error)
        self._welcomed.set()

    def _unreachable(self) -> ChannelClosed:
        return ChannelClosed(
            f"no scheduler answers at {self._address} for {self._timeout_s:g} s ({self._last}): start it, or see that "
            "the address is right"
        )
