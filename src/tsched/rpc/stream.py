"""One open stream to a worker: what waits to be sent on it, and how it ends."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from tsched.errors import Invalid, TschedError
from tsched.rpc.limits import MAX_UNREAD
from tsched.rpc.v1 import worker_pb2 as pb
from tsched.rpc.wire import failure

CODE = "tsched-code"
PATIENCE_S = 1.0


class Refused(Exception):
    """The stream ends with this status: a gRPC code, and the typed error that the worker is to raise."""

    def __init__(self, status: grpc.StatusCode, error: TschedError) -> None:
        super().__init__(status, error)
        self.status, self.error = status, error


class Stream:
    """The sending half, and the status with which the scheduler's side ends it."""

    def __init__(self, context: grpc.aio.ServicerContext[pb.FromWorker, pb.ToWorker]) -> None:
        self._context = context
        self._outbox: asyncio.Queue[pb.ToWorker | None] = asyncio.Queue()
        self._refusal: Refused | None = None
        self._refused: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._closed = False

    @property
    def closed(self) -> bool:
        return self._closed

    def send(self, message: pb.ToWorker) -> None:
        """Send when its turn comes; a worker that reads nothing for too long is let go."""
        if self._closed:
            return
        if self._outbox.qsize() < MAX_UNREAD:
            self._outbox.put_nowait(message)
        else:
            unread = Invalid(f"the worker left {MAX_UNREAD} messages unread")
            self.close(Refused(grpc.StatusCode.RESOURCE_EXHAUSTED, unread))

    def close(self, refusal: Refused | None = None) -> None:
        """End the stream, without a refusal after what waits to be sent."""
        if self._closed:
            return
        self._closed, self._refusal = True, refusal
        self._outbox.put_nowait(None)
        if refusal is not None:
            self._refused.set_result(None)

    async def receive(self) -> pb.FromWorker | None:
        """The worker's next message, None when it sends no more; raises `Refused` for what is no message."""
        try:
            message: Any = await self._context.read()
        except grpc.aio.BaseError:  # the stream has ended meanwhile
            return None
        except DecodeError as error:
            raise Refused(grpc.StatusCode.INVALID_ARGUMENT, Invalid(f"no message of tsched.v1: {error}")) from error
        return message if isinstance(message, pb.FromWorker) else None

    async def pump(self) -> None:
        """Send what waits until the stream is closed; then end it as `close` was told, even if the worker reads not."""
        writer = asyncio.ensure_future(self._write())
        try:
            await asyncio.wait({writer, self._refused}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({writer}, timeout=PATIENCE_S)  # for what is being sent
        finally:
            writer.cancel()
        if self._refusal is not None:
            await abort(self._context, self._refusal)

    async def _write(self) -> None:
        while (message := await self._outbox.get()) is not None and self._refusal is None:
            try:
                await self._context.write(message)
            except grpc.aio.BaseError:  # the stream has ended meanwhile
                return


async def abort(context: grpc.aio.ServicerContext[pb.FromWorker, pb.ToWorker], refusal: Refused) -> None:
    """End the call with a status from which the worker makes the typed error again."""
    told = failure(refusal.error)
    try:
        async with asyncio.timeout(PATIENCE_S):
            await context.abort(refusal.status, told.text, ((CODE, told.code),))
    except grpc.aio.AbortError:
        raise
    except (grpc.aio.BaseError, TimeoutError):  # the stream has ended meanwhile, or nobody reads it
        return
