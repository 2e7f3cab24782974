"""A worker's stream spoken by hand, for what no honest worker says."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import grpc

from tsched.rpc.limits import METHOD, VERSION
from tsched.rpc.processes import this_process
from tsched.rpc.v1 import worker_pb2 as pb
from tsched.rpc.wire import process_message

PATIENCE_S = 30


def hello(**changes: Any) -> pb.FromWorker:
    said: dict[str, Any] = {"version": VERSION, "client": "c", "job": "a", "group": "g", "node": "0", "weight": 1.0}
    return pb.FromWorker(hello=pb.Hello(**{**said, "process": process_message(this_process()), **changes}))


def acquire(call: int, request: int | None = None, *groups: str, **changes: Any) -> pb.FromWorker:
    number = call if request is None else request
    return pb.FromWorker(acquire=pb.Acquire(call=call, request=number, groups=groups or ("g",), **changes))


def release(call: int, lease: int, **changes: Any) -> pb.FromWorker:
    return pb.FromWorker(release=pb.Release(call=call, lease=lease, **changes))


class Raw:
    """One stream."""

    def __init__(self, call: Any) -> None:
        self.call = call

    async def say(self, *messages: pb.FromWorker | bytes) -> None:
        for message in messages:
            await self.call.write(message if isinstance(message, bytes) else message.SerializeToString())

    async def hear(self) -> pb.ToWorker:
        with anyio.fail_after(PATIENCE_S):
            return pb.ToWorker.FromString(await self.call.read())

    async def greet(self, **changes: Any) -> None:
        """Say Hello, and be welcome."""
        await self.say(hello(**changes))
        assert (await self.hear()).HasField("welcome")

    async def end(self) -> tuple[grpc.StatusCode, str]:
        with anyio.fail_after(PATIENCE_S):
            with suppress(grpc.aio.AioRpcError):
                while await self.call.read() is not grpc.aio.EOF:  # type: ignore[attr-defined]
                    pass
            return await self.call.code(), await self.call.details()


@asynccontextmanager
async def raw(address: str) -> AsyncIterator[Raw]:
    options = [
        ("grpc.max_send_message_length", -1),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.lookahead_bytes", 1024),
    ]
    async with grpc.aio.insecure_channel(address, options=options) as channel:
        open_stream: Any = channel.stream_stream
        yield Raw(open_stream(METHOD)())
