"""How errors leave the server: one table from ours to gRPC's codes, and one wrapper that every handler has.

A caller reads one line, never a traceback; what was not foreseen is logged here and named INTERNAL there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, NoReturn

import grpc

from tsched import errors
from tsched.orchestrator.access import Context, Refusal
from tsched.orchestrator.limits import Limits
from tsched.rpc.stream import CODE
from tsched.rpc.wire import failure

Code = grpc.StatusCode
Unary = Callable[[Any, Context], Awaitable[Any]]
Stream = Callable[[Any, Context], AsyncIterator[Any]]
Observe = Callable[[str, Code, str], None]  # the method, how the call ended, and what the caller was told

_log = logging.getLogger("tsched")

STATUSES: Mapping[type[errors.TschedError], Code] = {
    errors.Invalid: Code.INVALID_ARGUMENT,
    errors.UnknownGroup: Code.NOT_FOUND,
    errors.UnknownJob: Code.NOT_FOUND,
    errors.UnknownPlugin: Code.NOT_FOUND,
    errors.DuplicateJob: Code.ALREADY_EXISTS,
    errors.JobQuarantined: Code.UNAVAILABLE,
    errors.NeverFits: Code.FAILED_PRECONDITION,
    errors.WouldDeadlock: Code.FAILED_PRECONDITION,
    errors.AcquireRefused: Code.FAILED_PRECONDITION,
    errors.LeaseLost: Code.ABORTED,
    errors.SchedulerClosed: Code.UNAVAILABLE,
    errors.ChannelClosed: Code.UNAVAILABLE,
    errors.JournalError: Code.UNAVAILABLE,
    errors.BackendError: Code.UNAVAILABLE,
    errors.MissingExtra: Code.UNIMPLEMENTED,
}

REFUSED: Mapping[str, Code] = {
    "bad_request": Code.INVALID_ARGUMENT,
    "job_left": Code.ABORTED,
    "lease_lost": Code.ABORTED,
    "unknown_lease": Code.ABORTED,
    "too_many": Code.RESOURCE_EXHAUSTED,
}


def status_of(error: errors.TschedError) -> Code:
    """The code by which a client knows what kind of error it is."""
    if isinstance(error, Refusal):
        return error.status
    if isinstance(error, errors.AcquireRefused) and error.code in REFUSED:
        return REFUSED[error.code]
    return next((STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES), Code.INTERNAL)


def unary(handle: Unary, observe: Observe, name: str, limits: Limits) -> Unary:
    """The handler as gRPC may call it."""

    async def guarded(request: Any, context: Context) -> Any:
        try:
            with limits.open():
                answer = await handle(request, context)
        except BaseException as error:
            await _fail(error, context, observe, name)
        observe(name, Code.OK, "")
        return answer

    return guarded


def streaming(handle: Stream, observe: Observe, name: str, limits: Limits) -> Stream:
    """The same for one that answers with a stream."""

    async def guarded(request: Any, context: Context) -> AsyncIterator[Any]:
        try:
            with limits.open():
                async for answer in handle(request, context):
                    yield answer
        except GeneratorExit:
            raise
        except BaseException as error:
            await _fail(error, context, observe, name)
        observe(name, Code.OK, "")

    return guarded


async def _fail(error: BaseException, context: Context, observe: Observe, name: str) -> NoReturn:
    """End the call with the error's status; nothing of ours ever leaves a handler."""
    if isinstance(error, grpc.aio.AbortError):
        raise error
    if isinstance(error, asyncio.CancelledError):
        # The client is gone, or the server ends: a cancel that left the handler could keep the client waiting.
        status, told = Code.UNAVAILABLE, failure(errors.SchedulerClosed("the call was ended by the server"))
        observe(name, Code.CANCELLED, "")
    elif isinstance(error, errors.TschedError):
        status, told = status_of(error), failure(error)
        observe(name, status, told.text)
    elif isinstance(error, Exception):
        _log.error("%s failed", name, exc_info=error)
        status, told = (
            Code.INTERNAL,
            failure(errors.TschedError(f"{name} met an unexpected error: see the server's log")),
        )
        observe(name, status, told.text)
    else:
        raise error
    with suppress(grpc.aio.InternalError, grpc.aio.UsageError):  # the call has ended meanwhile
        await context.abort(status, told.text, ((CODE, told.code),))
    raise error
