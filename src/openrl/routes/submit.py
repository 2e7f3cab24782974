"""Numbered requests, handed to the service: as work, or where they make no sense as a future that has failed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog
from fastapi import Response

from openrl.routes.call import Call, answer
from openrl.service import Accepted
from openrl.wire import batches, body, decode, steps
from openrl.wire.futures import Promise
from openrl.wire.refusal import Malformed, TooLarge
from openrl.wire.training import ForwardBackward, Numbered, OptimStep

N = TypeVar("N", bound=Numbered)


def promise(accepted: Accepted) -> Response:
    """Where the result will be."""
    structlog.contextvars.bind_contextvars(future=accepted.request_id)
    return answer(Promise(request_id=accepted.request_id, model_id=accepted.model_id))


async def proto_batch(call: Call) -> Accepted:
    """A forward_backward in protobuf."""
    raw = await batch_body(call)
    message = batches.parse(raw)
    try:
        work = batches.from_proto(message, call.limits)
    except Malformed as refusal:
        return await refuse(call, message.model_id, message.seq_id, raw, refusal)
    submit = call.service.requests.submit
    return await submit(call.owner, message.model_id, message.seq_id, decode.PROTO_BATCH, raw, work)


async def batch_body(call: Call) -> bytes:
    """The body, decompressed. If that is too large the number is still taken, as far as it can be told."""
    try:
        return await call.content()
    except TooLarge as refusal:
        whose = batches.parse_prefix(body.prefix(call.head, call.encoding))
        if whose is not None:
            await refuse(call, *whose, b"", refusal)
        raise


async def json_batch(call: Call, forward_only: bool) -> Accepted:
    """A forward_backward or forward in JSON."""
    raw = await call.content()
    ask = decode.message(ForwardBackward, raw)
    try:
        work = decode.json_batch(ask, forward_only, call.limits)
    except Malformed as refusal:
        return await refuse(call, ask.model_id, ask.seq_id, raw, refusal)
    kind = decode.JSON_FORWARD if forward_only else decode.JSON_BATCH
    return await call.service.requests.submit(call.owner, ask.model_id, ask.seq_id, kind, raw, work)


async def step(call: Call) -> Accepted:
    """An optim_step."""
    raw = await call.small()
    ask = decode.message(OptimStep, raw)
    try:
        work = steps.from_json(ask)
    except Malformed as refusal:
        return await refuse(call, ask.model_id, ask.seq_id, raw, refusal)
    return await call.service.requests.submit(call.owner, ask.model_id, ask.seq_id, decode.OPTIM_STEP, raw, work)


async def refuse(call: Call, model_id: str, seq_id: int, raw: bytes, refusal: Exception) -> Accepted:
    """The request takes its number, and its future says what was wrong."""
    return await call.service.requests.refuse(call.owner, model_id, seq_id, raw, str(refusal))


async def numbered(call: Call, kind: type[N], carry_out: Callable[[Call, N], Awaitable[Accepted]]) -> Response:
    """A request with a number, carried out, or if it makes no sense a future that has failed."""
    raw = await call.small()
    ask = decode.message(kind, raw)
    try:
        accepted = await carry_out(call, ask)
    except Malformed as refusal:
        accepted = await refuse(call, ask.model_id, ask.seq_id, raw, refusal)
    return promise(accepted)
