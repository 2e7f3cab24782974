"""From an agent's errors to gRPC statuses: one line for the caller, and nothing of the inside."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

import grpc

from tsched.agent.access import Refusal
from tsched.agent.limits import TooMany
from tsched.errors import BackendError, Invalid, ProcessGone, TschedError, UnknownJob, UnknownPlugin

Request = TypeVar("Request")
Response = TypeVar("Response")

_log = logging.getLogger("tsched.agent")

# The first that fits.
_CODES: tuple[tuple[type[TschedError], grpc.StatusCode], ...] = (
    (TooMany, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (UnknownJob, grpc.StatusCode.NOT_FOUND),
    (ProcessGone, grpc.StatusCode.NOT_FOUND),
    (Invalid, grpc.StatusCode.INVALID_ARGUMENT),
    (UnknownPlugin, grpc.StatusCode.FAILED_PRECONDITION),
    (BackendError, grpc.StatusCode.FAILED_PRECONDITION),
)


def status_of(error: Exception) -> tuple[grpc.StatusCode, str]:
    """What a caller is told."""
    text = " ".join(str(error).split())
    if isinstance(error, Refusal):
        return grpc.StatusCode.UNAUTHENTICATED if error.unknown else grpc.StatusCode.PERMISSION_DENIED, text
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code, text
    _log.error("agent", exc_info=error)
    return grpc.StatusCode.INTERNAL, "the agent failed; its log says how"


def answering(
    handler: Callable[[Request, Any], Awaitable[Response]],
) -> Callable[[Request, Any], Awaitable[Response]]:
    """The handler, whose errors become statuses."""

    async def handle(request: Request, context: Any) -> Response:
        try:
            return await handler(request, context)
        except Exception as error:
            await context.abort(*status_of(error))
            raise AssertionError("abort raises") from error

    return handle


def streaming(
    handler: Callable[[Request, Any], AsyncIterator[Response]],
) -> Callable[[Request, Any], AsyncIterator[Response]]:
    """The same for a handler that answers with a stream."""

    async def handle(request: Request, context: Any) -> AsyncIterator[Response]:
        try:
            async for response in handler(request, context):
                yield response
        except Exception as error:
            await context.abort(*status_of(error))

    return handle
