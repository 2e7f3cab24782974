"""A connection to one agent: a call a time, each with an end, and each failure told by what it means.

There is no keepalive: some agents end connections that ask too often. A call that gets no answer ends by its time, and
is asked again by whoever still wants to know.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

from tsched.errors import BackendError
from tsched.rpc.address import parse
from tsched.rpc.limits import CLIENT

M = TypeVar("M", bound=Message)

_AWAY = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED})


class Unreachable(BackendError):
    """The agent did not answer; it may later."""


class NotOffered(BackendError):
    """What listens there does not have this service or method."""


class NotKnown(BackendError):
    """The agent does not know what was asked after."""


@dataclass(frozen=True, slots=True, repr=False)
class AgentCredentials:
    """What agents are shown. With `ca` the connection is encrypted, and the agent's certificate must be of it."""

    token: str = ""
    ca: bytes | None = None
    cert: bytes | None = None
    key: bytes | None = None


class AgentLink:
    """Opens its channel at the first call; made anew for another event loop. Needs asyncio."""

    def __init__(self, address: str, credentials: AgentCredentials | None = None) -> None:
        self.address = address
        self._credentials = credentials or AgentCredentials()
        self._channel: grpc.aio.Channel | None = None
        self._calls: set[asyncio.Task[bytes | grpc.aio.AioRpcError | None]] = set()
        token = self._credentials.token
        self._metadata = (("authorization", f"Bearer {token}"),) if token else ()

    def __str__(self) -> str:
        return f"agent at {self.address}"

    async def call(self, method: str, request: Message, answer: type[M], timeout_s: float) -> M:
        """One call, for so long at most.

        Raises:
            Unreachable, NotOffered, NotKnown: what each says.
            BackendError: it refused, or its answer is none.
        """
        unary: Any = self._open().unary_unary(method, None, None)
        call = unary(request.SerializeToString(), timeout=timeout_s, metadata=self._metadata)
        # In a task of its own, since gRPC raises a cancellation of its own making, which no scope takes for its own.
        task = asyncio.ensure_future(_answer(call))
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        try:
            await asyncio.wait([task])
        finally:
            call.cancel()
        said = task.result()
        if isinstance(said, grpc.aio.AioRpcError):
            raise self._meaning(said)
        if said is None:
            raise Unreachable(f"{self} cannot be reached: the connection was ended here")
        return self._read(said, answer)

    async def listen(self, method: str, request: Message, answer: type[M], timeout_s: float) -> AsyncIterator[M]:
        """A stream, once it is seen within `timeout_s` to be open, until it breaks; raises as `call` does."""
        stream: Any = self._open().unary_stream(method, None, None)
        call = stream(request.SerializeToString(), metadata=self._metadata)
        try:
            await _within(call.initial_metadata(), timeout_s, f"{self} does not open a stream")
            async for raw in call:
                yield self._read(raw, answer)
        except grpc.aio.AioRpcError as error:
            raise self._meaning(error) from None
        finally:
            call.cancel()
        raise Unreachable(f"{self} ended the stream")

    async def close(self) -> None:
        """End the connection, and see every call end with it."""
        if self._channel is not None:
            channel, self._channel = self._channel, None
            await channel.close(None)
        await asyncio.gather(*self._calls)

    def _open(self) -> grpc.aio.Channel:
        if self._channel is None:
            target, shown = parse(self.address).target, self._credentials
            if shown.ca is None:
                self._channel = grpc.aio.insecure_channel(target, options=CLIENT)
            else:
                secrets = grpc.ssl_channel_credentials(shown.ca, shown.key, shown.cert)
                self._channel = grpc.aio.secure_channel(target, secrets, options=CLIENT)
        return self._channel

    def _meaning(self, error: grpc.aio.AioRpcError) -> BackendError:
        code, said = error.code(), " ".join((error.details() or "").split())[:300]
        if code in _AWAY:
            return Unreachable(f"{self} cannot be reached: {code.name} {said}")
        if code is grpc.StatusCode.UNIMPLEMENTED:
            return NotOffered(f"{self} does not offer this: {said}")
        if code is grpc.StatusCode.NOT_FOUND:
            return NotKnown(f"{self}: {said}")
        return BackendError(f"{self} refuses: {code.name} {said}")

    def _read(self, raw: bytes, answer: type[M]) -> M:
        try:
            return answer.FromString(raw)
        except DecodeError:
            raise BackendError(f"{self} answers nonsense: {len(raw)} bytes that are no {answer.__name__}") from None


async def _answer(call: Any) -> bytes | grpc.aio.AioRpcError | None:
    """What came of a call; None where it was ended on this side."""
    try:
        return bytes(await call)
    except grpc.aio.AioRpcError as error:
        return error
    except asyncio.CancelledError:
        return None


async def _within(answer: Any, timeout_s: float, otherwise: str) -> None:
    try:
        await asyncio.wait_for(answer, timeout_s)
    except TimeoutError:
        raise Unreachable(otherwise) from None
