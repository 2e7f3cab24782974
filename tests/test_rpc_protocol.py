"""Whatever comes over the socket, the scheduler answers it or ends the stream, and goes on serving the others."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import anyio
import grpc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.rpc_raw import acquire, hello, raw, release
from tests.rpc_site import Site, site, until, worker
from tsched import Group
from tsched.rpc import reception
from tsched.rpc.limits import MAX_CALLS, MAX_MESSAGE_BYTES, VERSION
from tsched.rpc.processes import process_of_pid, this_process
from tsched.rpc.v1 import worker_pb2 as pb
from tsched.rpc.wire import process_message
from tsched.rpc.worker_status import WorkerStatus

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


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
        (hello(turn_bytes=2**62), "FAILED_PRECONDITION", "turn_bytes must be >= 0, and at most"),
        (hello(group="nowhere"), "FAILED_PRECONDITION", "no group 'nowhere'; there are: g"),
        (hello(node="7"), "FAILED_PRECONDITION", "group 'g' has no node '7'; there are: 0"),
        (hello(capabilities=pb.Capabilities(tags=["x"] * 100)), "FAILED_PRECONDITION", "100 region tags"),
        (hello(capabilities=pb.Capabilities(tags=["x" * 300])), "FAILED_PRECONDITION", "region tag"),
        (hello(process=pb.Process(host="x" * 300)), "FAILED_PRECONDITION", "host"),
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
            await again.say(hello(held=[lease, 99]))
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
            await until(lambda: not here.hub._reception._streams, "its stream is ended, though it reads nothing")
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


async def test_a_size_that_is_none_is_refused_and_the_turn_is_kept(tmp_path: Path) -> None:
    async with site(tmp_path) as here, raw(here.address) as stream:
        await stream.greet(state_bytes=1)
        await stream.say(acquire(1))
        lease = (await stream.hear()).reply.grant.lease
        await stream.say(release(2, lease, state_bytes=-1))
        assert (await stream.hear()).reply.failure.code == "invalid"
        assert here.holder() == "a"
        await stream.say(release(3, lease, state_bytes=2))
        assert (await stream.hear()).reply.HasField("done")
        assert here.scheduler.jobs["a"].state_bytes == {"g": 2}


async def test_an_answer_to_another_question_is_a_failed_order(tmp_path: Path) -> None:
    room = Group("g", capacity_bytes=100, retries=0)
    async with (
        site(tmp_path, room) as here,
        raw(here.address) as stream,
        worker(here.address, "b", state_bytes=60) as b,
    ):
        await stream.greet(state_bytes=60, capabilities=pb.Capabilities(moves=True))
        await stream.say(acquire(1))
        await stream.say(release(2, (await stream.hear()).reply.grant.lease))
        assert (await stream.hear()).reply.HasField("done")
        await b.tell("acquire")
        park = (await stream.hear()).order
        assert park.kind == pb.KIND_PARK
        await stream.say(
            pb.FromWorker(answer=pb.Answer(number=park.number + 1, done=pb.Done())),
            pb.FromWorker(answer=pb.Answer(number=park.number, presence=pb.Presence())),
            pb.FromWorker(answer=pb.Answer(number=park.number, done=pb.Done())),
        )
        while "a" not in {job for job, seen in here.scheduler.status().jobs.items() if seen.quarantined}:
            order = (await stream.hear()).order
            negative = pb.Presence(resident_bytes=-60)
            await stream.say(pb.FromWorker(answer=pb.Answer(number=order.number, presence=negative)))
            await anyio.sleep(0.01)
        reason = here.scheduler.status().jobs["a"].quarantined
        assert reason is not None
        assert "with 'presence' where 'done' was due" in reason


async def test_orders_of_two_schedulers_have_no_number_in_common(tmp_path: Path) -> None:
    numbers = []
    for name in ("first", "second"):
        async with (
            site(tmp_path, address=f"unix:{tmp_path}/{name}.sock") as here,
            raw(here.address) as stream,
            worker(here.address, "b", state_bytes=60) as b,
        ):
            await stream.greet(state_bytes=60, capabilities=pb.Capabilities(moves=True))
            await stream.say(acquire(1))
            await stream.say(release(2, (await stream.hear()).reply.grant.lease))
            await stream.hear()
            await b.tell("acquire")
            numbers.append((await stream.hear()).order.number)
    assert abs(numbers[0] - numbers[1]) > 1000


async def test_one_that_is_away_may_go_on_computing_until_its_process_ends(tmp_path: Path) -> None:
    async with site(tmp_path, grace_s=0.1) as here, worker(here.address, "b", state_bytes=1) as b:
        async with await anyio.open_process(["sleep", "600"]) as child:
            try:
                async with raw(here.address) as stream:
                    await stream.greet(state_bytes=1, process=process_message(process_of_pid(child.pid)))
                    await stream.say(acquire(1))
                    assert (await stream.hear()).reply.HasField("grant")
                await until(lambda: "a" not in here.scheduler.jobs, "job a is lost")
                await b.tell("acquire")
                await until(lambda: here.waiting() == ["b"], "b is in line")
                await anyio.sleep(0.2)
                assert here.waiting() == ["b"]
            finally:
                child.kill()
        assert "lease" in await b.hear()


async def test_a_lost_job_begins_anew_when_what_is_left_of_it_has_ended(tmp_path: Path) -> None:
    async with site(tmp_path) as here, worker(here.address, "a") as one, worker(here.address, "a") as two:
        one.process.kill()
        await until(lambda: "a" not in here.scheduler.jobs, "job a is lost")
        assert "was lost" in (await two.do("acquire"))["text"]
        async with raw(here.address) as stream:
            await stream.say(hello())
            code, details = await stream.end()
        assert code is grpc.StatusCode.FAILED_PRECONDITION
        assert f"end process {two.process.pid}" in details
        two.process.kill()
        await until(lambda: not here.hub.workers, "the orphan has ended")
        async with raw(here.address) as stream:
            await stream.greet()
            assert here.scheduler.jobs.keys() == {"a"}


async def test_a_lost_job_that_left_nothing_behind_begins_anew_though_nobody_can_watch_its_process(
    tmp_path: Path,
) -> None:
    unknown = pb.Process(pid=1, started=1, host="elsewhere")
    async with site(tmp_path, grace_s=0.1) as here:
        async with raw(here.address) as stream:
            await stream.greet(process=unknown, state_bytes=1)
        await until(lambda: "a" not in here.scheduler.jobs, "job a is lost")
        async with raw(here.address) as stream:
            await stream.greet()
            assert [seen.pid for seen in here.hub.workers] == [os.getpid()]


async def test_a_process_that_is_not_there_is_no_worker(tmp_path: Path) -> None:
    dead = process_message(this_process())
    async with site(tmp_path) as here:
        for pid in (dead.pid, 2**32 - 1):
            async with raw(here.address) as stream:
                dead.pid, dead.started = pid, dead.started + 1
                await stream.say(hello(process=dead))
                assert "is not there" in (await stream.end())[1]
        assert not here.hub.workers


async def test_more_streams_than_can_be_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reception, "MAX_STREAMS", 1)
    async with site(tmp_path) as here, raw(here.address) as first:
        await first.greet()  # before the second stream opens: which of two comes first, nobody knows
        async with raw(here.address) as second:
            code, details = await second.end()
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "1 streams are open already" in details


async def test_what_a_hub_shows_of_a_worker(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        async with raw(here.address) as stream:
            await stream.greet(capabilities=pb.Capabilities(moves=True, tags=["adapter"]))
            await stream.say(acquire(1))
            lease = (await stream.hear()).reply.grant.lease
            shown = WorkerStatus("c", "a", "g", "0", os.getpid(), True, True, (lease,), ("adapter",))
            assert here.hub.workers == (shown,)
        await until(lambda: not here.hub.workers[0].connected, "its stream has ended")
