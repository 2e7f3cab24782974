"""What every call passes on its way in and out: limits of what is open, errors as statuses, counts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import grpc
from google.protobuf.message import Message

from tsched.orchestrator.access import Access, Caller, Context
from tsched.orchestrator.limits import Limits
from tsched.orchestrator.statuses import Observe, Stream, streaming, unary
from tsched.orchestrator.statuses import Unary as Handler

Unary = tuple[Callable[[Any, Context], Awaitable[Message]], type[Message]]
Streaming = tuple[Callable[[Any, Context], AsyncIterator[Message]], type[Message]]


def unobserved(method: str, status: grpc.StatusCode, told: str) -> None:
    """Counts nothing."""


class Guard:
    """Makes handlers of plain methods: each gets a message and the call's context, and raises what is wrong."""

    def __init__(self, access: Access, limits: Limits, observe: Observe = unobserved) -> None:
        self.access, self.limits, self._observe = access, limits, observe
        self._busy = 0
        self._idle = asyncio.Event()

    def caller(self, context: Context) -> Caller:
        """Who calls, once more; raises `Refusal` for one who is not known, or calls too often."""
        caller = self.access.caller(context)
        self.limits.spend(caller)
        return caller

    def service(
        self, name: str, calls: Mapping[str, Unary], streams: Mapping[str, Streaming] | None = None
    ) -> grpc.GenericRpcHandler[Any, Any]:
        """A service of unary calls, and of calls that are answered with a stream."""
        handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}
        for method, (handle, kind) in calls.items():
            guarded = self._counted(unary(handle, self._observe, method, self.limits))
            handlers[method] = grpc.unary_unary_rpc_method_handler(
                guarded, request_deserializer=kind.FromString, response_serializer=_serialize
            )
        for method, (answer, kind) in (streams or {}).items():
            stream = self._counted_stream(streaming(answer, self._observe, method, self.limits))
            handlers[method] = grpc.unary_stream_rpc_method_handler(
                stream, request_deserializer=kind.FromString, response_serializer=_serialize
            )
        return grpc.method_handlers_generic_handler(name, handlers)

    async def answered(self) -> None:
        """Wait until all calls have been answered."""
        while self._busy:
            self._idle.clear()
            await self._idle.wait()

    def _counted(self, handle: Handler) -> Handler:
        async def counted(request: Any, context: Context) -> Any:
            self._busy += 1
            try:
                return await handle(request, context)
            finally:
                self._left()

        return counted

    def _counted_stream(self, answer: Stream) -> Stream:
        async def counted(request: Any, context: Context) -> AsyncIterator[Any]:
            self._busy += 1
            try:
                async for message in answer(request, context):
                    yield message
            finally:
                self._left()

        return counted

    def _left(self) -> None:
        self._busy -= 1
        if not self._busy:
            self._idle.set()


def _serialize(message: Message) -> bytes:
    return message.SerializeToString()
