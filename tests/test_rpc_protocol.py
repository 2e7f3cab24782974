"""Whatever comes over the socket, the scheduler answers it or ends the stream, and goes on serving the others."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import grpc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.rpc_site import Site, site, until, worker
from tsched.rpc.limits import MAX_CALLS, MAX_MESSAGE_BYTES, METHOD, VERSION
from tsched.rpc.processes import this_process
from tsched.rpc.v1 import worker_pb2 as pb
from tsched.rpc.wire import process_message

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def hello(**changes: Any) -> pb.FromWorker:
    said: dict[str, Any] = {"version": VERSION, "client": "c", "job": "a", "group": "g", "node": "0", "weight": 1.0}
    return pb.FromWorker(hello=pb.Hello(**{**said, "process": process_message(this_process()), **changes}))


class Raw:
    """One stream, spoken by hand."""

    def __init__(self, call: Any) -> None:
        self.call = call

    async def say(self, *messages: pb.FromWorker | bytes) -> None:
        for message in messages:
            await self.call.write(message if isinstance(message, bytes) else message.SerializeToString())

    async def hear(self) -> pb.ToWorker:
        with anyio.fail_after(20):
            return pb.ToWorker.FromString(await self.call.read())

    async def end(self) -> tuple[grpc.StatusCode, str]:
        with anyio.fail_after(20):
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


async def still_serves(here: Site) -> None:
    async with worker(here.address, "other") as other:
        held = await other.do("acquire")
        assert await other.do("release", lease=held["lease"]) == "done"
        assert await other.do("close") == "done"


@pytest.mark.parametrize(
    ("said", "status", "text"),
    [
        (
            hello(version=VERSION + 1),
            "FAILED_PRECONDITION",
            f"version {VERSION + 1} of tsched.v1, this",
        ),
        (hello(version=0), "FAILED_PRECONDITION", "version 0"),
        (hello(job=""), "FAILED_PRECONDITION", "job is empty"),
        (hello(job="x" * 300), "FAILED_PRECONDITION", "has 300 bytes"),
        (hello(job="a\nb"), "FAILED_PRECONDITION", "cannot be printed"),
        (hello(client=""), "FAILED_PRECONDITION", "client is empty"),
        (hello(weight=-1.0), "FAILED_PRECONDITION", "weight must be"),
        (hello(weight=float("nan")), "FAILED_PRECONDITION", "weight must be"),
        (hello(state_bytes=-5), "FAILED_PRECONDITION", "must be >= 0"),
        (hello(group="nowhere", state_bytes=1), "FAILED_PRECONDITION", "no group 'nowhere'"),
        (pb.FromWorker(acquire=pb.Acquire(call=1)), "INVALID_ARGUMENT", "begins with Hello"),
        (pb.FromWorker(), "INVALID_ARGUMENT", "begins with Hello"),
        (b"\xff\xff\xff\xff", "INVALID_ARGUMENT", "no message of tsched.v1"),
    ],
)
async def test_a_wrong_beginning_is_refused_with_a_reason(
    tmp_path: Path, said: pb.FromWorker | bytes, status: str, text: str
) -> None:
    async with site(tmp_path) as here, raw(here.address) as stream:
        await stream.say(said)
        code, details = await stream.end()
        assert code.name == status
        assert text in details
        assert not here.scheduler.jobs


async def test_garbage_in_the_midst_ends_that_stream_alone(tmp_path: Path) -> None:
    async with site(tmp_path) as here, raw(here.address) as stream:
        await stream.say(hello())
        assert (await stream.hear()).HasField("welcome")
        await stream.say(b"\x0a\xff\xff\xff\xff\x0f garbage")
        code, _ = await stream.end()
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        await still_serves(here)


async def test_a_second_hello_ends_the_stream(tmp_path: Path) -> None:
    async with site(tmp_path) as here, raw(here.address) as stream:
        await stream.say(hello(), hello())
        code, details = await stream.end()
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert "Hello twice" in details
        await still_serves(here)


async def test_an_oversized_message_ends_the_stream(tmp_path: Path) -> None:
    async with site(tmp_path) as here, raw(here.address) as stream:
        await stream.say(hello(owner="x" * (MAX_MESSAGE_BYTES + 1)))
        code, _ = await stream.end()
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        await still_serves(here)


async def test_bytes_that_are_not_http_end_that_connection_alone(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        with socket.socket(socket.AF_UNIX) as odd:
            odd.connect(here.address.removeprefix("unix:"))
            odd.sendall(bytes(range(256)) * 64)
            await still_serves(here)


async def test_fields_and_messages_of_a_later_version_are_left_alone(tmp_path: Path) -> None:
    async with site(tmp_path) as here, raw(here.address) as stream:
        later = b"\xc2\x3e\x03abc"  # field 1000
        await stream.say(hello().SerializeToString() + later)
        assert (await stream.hear()).HasField("welcome")
        await stream.say(later, pb.FromWorker(acquire=pb.Acquire(call=7, request=1, groups=["g"])))
        reply = (await stream.hear()).reply
        assert (reply.call, reply.grant.tokens["g"]) == (7, 1)


async def test_requests_beyond_the_limit_are_refused_and_the_others_wait_on(tmp_path: Path) -> None:
    async with site(tmp_path) as here, raw(here.address) as stream:
        await stream.say(hello())
        await stream.hear()
        calls = [pb.Acquire(call=n, request=n, groups=["g"]) for n in range(1, MAX_CALLS + 3)]
        await stream.say(*(pb.FromWorker(acquire=call) for call in calls))
        replies = [(await stream.hear()).reply for _ in range(2)]
        assert [reply.WhichOneof("outcome") for reply in replies] == ["grant", "failure"]
        assert replies[1].failure.code == "too_many"
        assert len(here.waiting()) == MAX_CALLS


async def test_the_same_request_over_two_calls_is_one_request(tmp_path: Path) -> None:
    async with site(tmp_path) as here, raw(here.address) as stream, worker(here.address, "b") as b:
        held = await b.do("acquire")
        await stream.say(hello())
        await stream.hear()
        await stream.say(*(pb.FromWorker(acquire=pb.Acquire(call=n, request=5, groups=["g"])) for n in (1, 2, 1)))
        await until(lambda: len(here.waiting()) == 1, "one request waits")
        await b.do("release", lease=held["lease"])
        replies = [(await stream.hear()).reply for _ in range(2)]
        assert sorted(reply.call for reply in replies) == [1, 2]
        assert {reply.grant.lease for reply in replies} == {held["lease"] + 1}


async def test_another_worker_s_lease_cannot_be_given_back_or_renewed(tmp_path: Path) -> None:
    async with site(tmp_path) as here, raw(here.address) as stream, worker(here.address, "b") as b:
        held = await b.do("acquire")
        await stream.say(hello())
        await stream.hear()
        await stream.say(pb.FromWorker(release=pb.Release(call=1, lease=held["lease"])))
        await stream.say(pb.FromWorker(renew=pb.Renew(call=2, lease=held["lease"])))
        assert (await stream.hear()).reply.HasField("done")
        assert (await stream.hear()).reply.failure.code == "lease_lost"
        assert here.holder() == "b"


async def test_a_grant_that_crosses_its_cancellation_is_given_back(tmp_path: Path) -> None:
    async with site(tmp_path) as here, raw(here.address) as stream:
        await stream.say(hello())
        await stream.hear()
        await stream.say(pb.FromWorker(acquire=pb.Acquire(call=1, request=1, groups=["g"])))
        assert (await stream.hear()).reply.HasField("grant")
        await stream.say(pb.FromWorker(cancel=pb.Cancel(call=1)))
        await until(lambda: here.holder() is None, "the lease is given back")


async def test_a_broken_stream_is_taken_up_again_by_the_same_client(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        async with raw(here.address) as stream:
            await stream.say(hello())
            await stream.hear()
            await stream.say(pb.FromWorker(acquire=pb.Acquire(call=1, request=1, groups=["g"])))
            lease = (await stream.hear()).reply.grant.lease
        await until(lambda: here.holder() == "a", "the lease goes on")
        async with raw(here.address) as again:
            await again.say(hello(held=[pb.Held(lease=lease, request=1, groups=["g"]), pb.Held(lease=99)]))
            assert (await again.hear()).HasField("welcome")
            changes = [(await again.hear()).changed for _ in range(2)]
            assert dict(changes[0].tokens) == {"g": 1}
            assert changes[1].lost == "it ended while the connection was broken"
        async with raw(here.address) as third:
            await third.say(hello())
            assert (await third.hear()).HasField("welcome")
            await until(lambda: here.holder() is None, "what the worker does not know of is given back")


async def test_who_does_not_come_back_in_time_is_lost(tmp_path: Path) -> None:
    async with site(tmp_path, grace_s=0.3) as here:
        async with raw(here.address) as stream:
            await stream.say(hello())
            await stream.hear()
        await until(lambda: "a" not in here.scheduler.jobs, "job a is lost")


async def test_a_worker_that_never_reads_is_let_go(tmp_path: Path) -> None:
    async with site(tmp_path, grace_s=0.3) as here, raw(here.address) as stream:
        await stream.say(hello())
        await stream.hear()
        renewal = pb.FromWorker(renew=pb.Renew(call=1, lease=2**63))

        async def flood() -> None:
            with suppress(grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError):
                while "a" in here.scheduler.jobs:
                    await stream.say(*[renewal] * 100)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(flood)
            await until(lambda: "a" not in here.scheduler.jobs, "job a is lost")
            code, _ = await stream.end()
        assert code is not grpc.StatusCode.OK
        await still_serves(here)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.binary(max_size=64), max_size=5))
def test_no_bytes_take_the_server_down(tmp_path: Path, sent: Iterable[bytes]) -> None:
    async def attack() -> None:
        async with site(tmp_path) as here, raw(here.address) as stream:
            await stream.say(hello())
            with suppress(grpc.aio.AioRpcError, grpc.aio.UsageError):
                await stream.say(*sent)
                await stream.call.done_writing()
                await stream.end()
            async with raw(here.address) as other:
                await other.say(hello(client="other", job="other"))
                assert (await other.hear()).HasField("welcome")

    anyio.run(attack)
