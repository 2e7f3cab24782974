"""One request: who sends it, and its body, within the limits."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from typing import Annotated, TypeVar

import structlog
from fastapi import Depends, Query, Request, Response

from openrl import access
from openrl.config import Config
from openrl.routes.polls import Polls
from openrl.service import Service
from openrl.store import Key
from openrl.wire import body, decode
from openrl.wire.message import Message
from openrl.wire.refusal import too_large

M = TypeVar("M", bound=Message)

API = "/api/v1"
PROTOBUF = "application/x-protobuf"
DRAINED_BODIES = 16  # times the limit: an answer is heard only by a client that has done sending
MOST_CLIENTS = 2**32  # so that a client's requests, numbered from 10**9 times its own number, stay below 2**63
IN_A_THREAD_BYTES = 256 * 1024


class Gateway:
    """What all requests share; lives in the application's state."""

    def __init__(self, service: Service, keys: access.Keys, config: Config, signing_key: bytes) -> None:
        self.service = service
        self.keys = keys
        self.config = config
        self.signing_key = signing_key
        self.polls = Polls()
        self.clients = itertools.count(1 + secrets.randbelow(MOST_CLIENTS))  # numbers for clients of sampling sessions


class Call:
    """A request whose key is good."""

    def __init__(self, gateway: Gateway, request: Request, key: Key) -> None:
        self.gateway = gateway
        self.service = gateway.service
        self.limits = gateway.config.limits
        self.request = request
        self.key = key
        self.owner = key.owner
        self._content: bytes | None = None
        self.head = b""  # the first bytes of the body as sent, also of one that is too large

    @property
    def is_protobuf(self) -> bool:
        """Whether the body is."""
        return PROTOBUF in self.request.headers.get("content-type", "")

    @property
    def reads_protobuf(self) -> bool:
        """Whether the answer may be."""
        return PROTOBUF in self.request.headers.get("accept", "")

    @property
    def encoding(self) -> str:
        return self.request.headers.get("content-encoding", "").strip().lower()

    async def raw(self) -> bytes:
        """The body as sent. Raises TooLarge, after it has come in, so that the client is there to hear of it."""
        allowed = self.limits.body_bytes
        pieces: list[bytes] = []
        size = 0
        async for piece in self.request.stream():
            size += len(piece)
            self.head = self.head or piece
            if size <= allowed:
                pieces.append(piece)
            elif size > DRAINED_BODIES * allowed:
                break
        if size > allowed:
            raise too_large("body_bytes", allowed)
        return b"".join(pieces)

    async def content(self) -> bytes:
        """The body, decompressed."""
        if self._content is None:
            self._content = await self.decompressed(await self.raw())
        return self._content

    async def decompressed(self, raw: bytes) -> bytes:
        """`raw` without its encoding; large ones do not hold up other requests."""
        if len(raw) > IN_A_THREAD_BYTES and self.encoding not in ("", "identity"):
            return await asyncio.to_thread(body.decompress, raw, self.encoding, self.limits)
        return body.decompress(raw, self.encoding, self.limits)

    async def message(self, kind: type[M]) -> M:
        """The body as a JSON message."""
        return decode.message(kind, await self.small())

    async def small(self) -> bytes:
        """The body of a request that carries no tokens. Raises TooLarge: JSON read takes many times its size."""
        content = await self.content()
        if len(content) > self.limits.message_bytes:
            raise too_large("message_bytes", self.limits.message_bytes)
        return content


async def enter(request: Request) -> Call:
    """Authenticate."""
    gateway: Gateway = request.app.state.gateway
    key = gateway.keys.authenticate(request.headers.get("x-api-key"))
    structlog.contextvars.bind_contextvars(owner=key.owner)
    return Call(gateway, request, key)


Caller = Annotated[Call, Depends(enter)]
Limit = Annotated[int, Query(ge=0, le=10_000)]  # of a page
Offset = Annotated[int, Query(ge=0, lt=2**63)]


def answer(message: Message, status: int = 200) -> Response:
    """The message as JSON."""
    return Response(message.model_dump_json(exclude_none=True), status, media_type="application/json")


def nothing() -> Response:
    """Done, and nothing to say."""
    return Response(status_code=204)
