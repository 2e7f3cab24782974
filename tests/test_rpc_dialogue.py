"""The worker against a scheduler that is spoken by hand: what it says when calls and streams cross each other."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import grpc
import pytest

from tsched.errors import AcquireRefused, ChannelClosed
from tsched.rpc.limits import METHOD, VERSION
from tsched.rpc.v1 import worker_pb2 as pb
from tsched.rpc.worker import Worker

pytestmark = pytest.mark.anyio
WELCOME = pb.ToWorker(welcome=pb.Welcome(version=VERSION))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Stream:
    """The scheduler's end of one stream; it ends with `over`."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self.over = asyncio.Event()

    async def hear(self) -> pb.FromWorker:
        with anyio.fail_after(30):
            return pb.FromWorker.FromString(await self._context.read())

    async def say(self, message: pb.ToWorker) -> None:
        await self._context.write(message.SerializeToString())


@asynccontextmanager
async def scheduler(folder: Path) -> AsyncIterator[tuple[str, Callable[[], Any]]]:
    """Yields the address, and what waits for the next stream."""
    streams: asyncio.Queue[Stream] = asyncio.Queue()

    async def attach(_: object, context: Any) -> None:
        stream = Stream(context)
        streams.put_nowait(stream)
        await stream.over.wait()

    server, address = grpc.aio.server(), f"unix:{folder}/s.sock"
    service, method = METHOD.strip("/").split("/")
    handler = grpc.stream_stream_rpc_method_handler(attach)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
    server.add_insecure_port(address)
    await server.start()
    try:
        yield address, streams.get
    finally:
        await server.stop(0.1)


class Doing:
    """Something that a worker does in a thread of its own, and what came of it."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self.came: Any = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.came = self._work()
        except Exception as error:
            self.came = error

    async def ended(self) -> Any:
        with anyio.fail_after(30):
            await anyio.to_thread.run_sync(self._thread.join)
        return self.came


async def connect(address: str, next_stream: Callable[[], Any]) -> tuple[Worker, Stream]:
    doing = Doing(partial(Worker.connect, address, job="a", group="g", timeout_s=20))
    stream: Stream = await next_stream()
    assert (await stream.hear()).HasField("hello")
    await stream.say(WELCOME)
    worker = await doing.ended()
    assert isinstance(worker, Worker), worker
    return worker, stream


async def end(worker: Worker, stream: Stream) -> None:
    closing = Doing(partial(worker.close, done=False))
    goodbye = (await stream.hear()).goodbye
    await stream.say(pb.ToWorker(reply=pb.Reply(call=goodbye.call, done=pb.Done())))
    await closing.ended()
    stream.over.set()


async def test_a_call_that_is_given_up_between_hello_and_welcome_is_withdrawn(tmp_path: Path) -> None:
    async with scheduler(tmp_path) as (address, next_stream):
        worker, first = await connect(address, next_stream)
        asking = Doing(partial(worker.acquire, timeout_s=0.5))
        call = (await first.hear()).acquire.call
        first.over.set()
        second: Stream = await next_stream()
        assert (await second.hear()).hello.calls == [call]
        assert isinstance(await asking.ended(), AcquireRefused)
        await second.say(WELCOME)
        assert (await second.hear()).cancel.call == call
        await end(worker, second)


async def test_a_grant_that_nobody_waits_for_is_given_back(tmp_path: Path) -> None:
    async with scheduler(tmp_path) as (address, next_stream):
        worker, stream = await connect(address, next_stream)
        grant = pb.Grant(lease=7, tokens={"g": 1})
        await stream.say(pb.ToWorker(reply=pb.Reply(call=99, grant=grant)))
        assert (await stream.hear()).cancel.call == 99
        await end(worker, stream)


async def test_a_grant_that_is_told_twice_is_one_turn(tmp_path: Path) -> None:
    async with scheduler(tmp_path) as (address, next_stream):
        worker, stream = await connect(address, next_stream)
        asking = Doing(worker.acquire)
        call = (await stream.hear()).acquire.call
        for _ in range(2):
            await stream.say(pb.ToWorker(reply=pb.Reply(call=call, grant=pb.Grant(lease=7, tokens={"g": 1}))))
        lease = await asking.ended()
        releasing = Doing(partial(worker.release, lease))
        heard = await stream.hear()
        assert heard.release.lease == 7
        await stream.say(pb.ToWorker(reply=pb.Reply(call=heard.release.call, done=pb.Done())))
        assert await releasing.ended() is None
        await end(worker, stream)


async def test_a_lease_of_two_calls_stays_when_one_of_them_is_given_up(tmp_path: Path) -> None:
    async with scheduler(tmp_path) as (address, next_stream):
        worker, stream = await connect(address, next_stream)
        asking = Doing(partial(worker.acquire, request=5))
        call = (await stream.hear()).acquire.call
        await stream.say(pb.ToWorker(reply=pb.Reply(call=call, grant=pb.Grant(lease=7, tokens={"g": 1}))))
        lease = await asking.ended()
        again = Doing(partial(worker.acquire, request=5, timeout_s=0.2))
        late = (await stream.hear()).acquire.call
        assert isinstance(await again.ended(), AcquireRefused)
        assert (await stream.hear()).cancel.call == late
        stream.over.set()
        second: Stream = await next_stream()
        assert (await second.hear()).hello.held == [lease.id]
        await second.say(WELCOME)
        await end(worker, second)


async def test_orders_to_a_worker_without_a_backend_are_met(tmp_path: Path) -> None:
    async with scheduler(tmp_path) as (address, next_stream):
        worker, stream = await connect(address, next_stream)
        for number, kind in enumerate((pb.KIND_PARK, pb.KIND_DISCARD, pb.KIND_PROBE, pb.KIND_SIZES), 1):
            await stream.say(pb.ToWorker(order=pb.Order(number=number, kind=kind, group="g", node="0", job="a")))
            answer = (await stream.hear()).answer
            assert answer.number == number
            assert not answer.HasField("failure")
        await end(worker, stream)


@pytest.mark.parametrize("first", [pb.ToWorker(), pb.ToWorker(welcome=pb.Welcome(version=VERSION + 1))])
async def test_a_server_that_does_not_welcome_is_not_talked_to(tmp_path: Path, first: pb.ToWorker) -> None:
    async with scheduler(tmp_path) as (address, next_stream):
        doing = Doing(partial(Worker.connect, address, job="a", group="g", timeout_s=20))
        stream: Stream = await next_stream()
        await stream.hear()
        await stream.say(first)
        error = await doing.ended()
        assert isinstance(error, ChannelClosed)
        assert "does not speak as this tsched" in str(error)
        stream.over.set()
