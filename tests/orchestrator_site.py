"""An orchestrator in this process, and a client of llm-d's protocol that is nothing but gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import grpc

from tsched.llmd import orchestrator_pb2 as pb
from tsched.orchestrator.config import Config
from tsched.orchestrator.llmd import SERVICE
from tsched.orchestrator.server import Running, serve

PATIENCE_S = 30


def configured(folder: Path, *groups: str, **sections: Any) -> Config:
    """A configuration with all in `folder`; a group named twice is one with its own section."""
    server = {"listen": "127.0.0.1:0", "http": "", "log": folder / "log.db", **sections.pop("server", {})}
    named = {name: {} for name in groups or ("g",)} | sections.pop("groups", {})
    return Config.model_validate({"server": server, "groups": named, **sections})


@asynccontextmanager
async def orchestrator(config: Config) -> AsyncIterator[tuple[Running, Llmd]]:
    """A server, and a client that is there when it ends."""
    async with AsyncExitStack() as clients, serve(config) as running:
        yield running, await clients.enter_async_context(llmd(running.address))


@asynccontextmanager
async def llmd(
    address: str, *, token: str = "", credentials: grpc.ChannelCredentials | None = None, **options: Any
) -> AsyncIterator[Llmd]:
    arguments = [("grpc.use_local_subchannel_pool", 1), *options.items()]
    if credentials is None:
        channel = grpc.aio.insecure_channel(address, options=arguments)
    else:
        channel = grpc.aio.secure_channel(address, credentials, options=arguments)
    async with channel:
        yield Llmd(channel, token)


class Llmd:
    """The four calls."""

    def __init__(self, channel: grpc.aio.Channel, token: str = "") -> None:
        self._metadata = (("authorization", f"Bearer {token}"),) if token else ()
        self._acquire = _method(channel, "Acquire", pb.AcquireRequest, pb.AcquireResponse)
        self._yield = _method(channel, "Yield", pb.YieldRequest, pb.YieldResponse)
        self._list = _method(channel, "ListGroups", pb.ListGroupsRequest, pb.ListGroupsResponse)
        self._status = _method(channel, "GetGroupStatus", pb.GetGroupStatusRequest, pb.GetGroupStatusResponse)

    def acquire(self, job: str, group: str = "g", timeout: float | None = None) -> Any:
        """A call, which can be awaited and cancelled; it has begun."""
        request = pb.AcquireRequest(job_id=job, group_id=group)
        return self._acquire(request, timeout=timeout, metadata=self._metadata)

    async def give_up(self, job: str, group: str = "g") -> Any:
        return await self._do(self._yield, pb.YieldRequest(job_id=job, group_id=group))

    async def groups(self) -> list[str]:
        return list((await self._do(self._list, pb.ListGroupsRequest())).group_ids)

    async def status(self, group: str = "g") -> Any:
        return await self._do(self._status, pb.GetGroupStatusRequest(group_id=group))

    async def _do(self, method: Any, request: Any) -> Any:
        return await method(request, timeout=PATIENCE_S, metadata=self._metadata)


def _method(channel: grpc.aio.Channel, name: str, request: Any, response: Any) -> Any:
    path = f"/{SERVICE}/{name}"
    return channel.unary_unary(
        path, request_serializer=request.SerializeToString, response_deserializer=response.FromString
    )


async def refused(call: Any) -> tuple[grpc.StatusCode, str]:
    """The status with which a call ends, which must not be OK."""
    try:
        with anyio.fail_after(PATIENCE_S):
            answer = await call
    except grpc.aio.AioRpcError as error:
        return error.code(), error.details() or ""
    except asyncio.CancelledError:
        return grpc.StatusCode.CANCELLED, "by the client itself"
    raise AssertionError(f"answered: {answer}")


def line(running: Running, group: str = "g") -> tuple[str | None, list[str]]:
    """Who holds, and who waits, in order."""
    status = running.scheduler.group_status(group)
    return None if status.holder is None else status.holder.job, [waiter.job for waiter in status.waiters]


async def until(condition: Callable[[], bool], what: str, seen: Callable[[], object] = lambda: "") -> None:
    """Wait for what the other side makes true."""
    with anyio.move_on_after(PATIENCE_S):
        while not condition():  # noqa: ASYNC110  what is waited for happens elsewhere
            await anyio.sleep(0.002)
        return
    raise AssertionError(f"never: {what}; it is {seen()}")


async def until_line(running: Running, holder: str | None, *waiters: str, group: str = "g") -> None:
    expected = (holder, list(waiters))
    await until(lambda: line(running, group) == expected, f"on {group}: {expected}", lambda: line(running, group))
