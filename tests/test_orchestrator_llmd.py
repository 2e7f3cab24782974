"""llm-d's orchestrator service, as its clients see it."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import grpc
import pytest

from tests.orchestrator_site import configured, line, llmd, orchestrator, refused, until, until_line
from tsched.events import LeaseRenewed
from tsched.llmd import orchestrator_pb2 as pb
from tsched.orchestrator.llmd import SERVICE

pytestmark = pytest.mark.anyio
Code = grpc.StatusCode


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_a_free_group_is_granted_and_the_next_waits_until_yield(tmp_path: Path) -> None:
    async with orchestrator(configured(tmp_path)) as (running, client):
        first = await client.acquire("a")
        assert first.success
        assert not first.context_restored
        second = client.acquire("b")
        await until_line(running, "a", "b")
        answer = await client.give_up("a")
        assert answer.success
        assert answer.pending_waiters == 1
        assert (await second).success
        assert line(running) == ("b", [])


async def test_waiters_are_served_in_the_order_in_which_they_came(tmp_path: Path) -> None:
    async with orchestrator(configured(tmp_path)) as (running, client):
        await client.acquire("a")
        calls = {}
        for job in "bcd":
            calls[job] = client.acquire(job)
            await until(lambda job=job: line(running)[1][-1:] == [job], f"{job} waits")  # type: ignore[misc]
        for job, after in zip("abc", "bcd", strict=True):
            await client.give_up(job)
            assert (await calls[after]).success


async def test_a_waiter_is_told_how_long_it_waited(tmp_path: Path) -> None:
    async with orchestrator(configured(tmp_path)) as (running, client):
        await client.acquire("a")
        call = client.acquire("b")
        await until_line(running, "a", "b")
        await asyncio.sleep(0.05)
        await client.give_up("a")
        assert 50 <= (await call).waited_ms < 30_000


async def test_a_repeated_acquire_attaches_to_the_request_that_waits(tmp_path: Path) -> None:
    async with orchestrator(configured(tmp_path)) as (running, client):
        await client.acquire("a")
        calls = [client.acquire("b"), client.acquire("b")]
        other = client.acquire("c")
        await until_line(running, "a", "b", "c")
        await client.give_up("a")
        assert [(await call).success for call in calls] == [True, True]
        assert line(running) == ("b", ["c"])
        other.cancel()


async def test_a_repeated_acquire_of_the_holder_is_answered_at_once(tmp_path: Path) -> None:
    async with orchestrator(configured(tmp_path)) as (running, client):
        await client.acquire("a")
        lease = running.scheduler.holder("g")
        assert (await client.acquire("a")).success
        again = running.scheduler.holder("g")
        assert lease is not None
        assert again is not None
        assert (lease.lease, lease.token) == (again.lease, again.token)
        await client.give_up("a")
        assert line(running) == (None, [])


async def test_a_waiter_that_cancels_or_passes_its_deadline_or_breaks_off_leaves_the_line(tmp_path: Path) -> None:
    async with orchestrator(configured(tmp_path)) as (running, client):
        await client.acquire("a")
        cancelled = client.acquire("b")
        await until_line(running, "a", "b")
        cancelled.cancel()
        await until_line(running, "a")
        late = client.acquire("c", timeout=0.2)
        assert (await refused(late))[0] is Code.DEADLINE_EXCEEDED
        await until_line(running, "a")
        async with llmd(running.address) as other:
            broken = other.acquire("d")
            await until_line(running, "a", "d")
        await until_line(running, "a")
        await refused(broken)
        assert (await client.give_up("a")).pending_waiters == 0
        assert line(running) == (None, [])


async def test_a_synchronous_client_in_a_thread_waits_and_cancels(tmp_path: Path) -> None:
    async with orchestrator(configured(tmp_path)) as (running, client):
        await client.acquire("a")
        calls: list[Any] = []

        def block() -> None:
            with grpc.insecure_channel(running.address) as channel:
                acquire = channel.unary_unary(
                    f"/{SERVICE}/Acquire",
                    request_serializer=pb.AcquireRequest.SerializeToString,
                    response_deserializer=pb.AcquireResponse.FromString,
                )
                for job in ("b", "c"):
                    calls.append(acquire.future(pb.AcquireRequest(job_id=job, group_id="g")))
                with suppress(grpc.FutureCancelledError):
                    calls[0].exception()
                calls[1].exception()

        thread = threading.Thread(target=block)
        thread.start()
        await until(lambda: set(line(running)[1]) == {"b", "c"}, "both wait")
        calls[0].cancel()
        await until_line(running, "a", "c")
        await client.give_up("a")
        await anyio.to_thread.run_sync(thread.join)
        assert calls[1].result().success


async def test_a_request_keeps_its_place_while_somebody_waits_for_it(tmp_path: Path) -> None:
    async with orchestrator(configured(tmp_path)) as (running, client):
        await client.acquire("a")
        first = client.acquire("b")
        await until_line(running, "a", "b")
        second, other = client.acquire("b"), client.acquire("c")
        await until_line(running, "a", "b", "c")
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        await client.groups()  # which came after the cancel, over the same connection
        await client.give_up("a")
        assert (await second).success
        assert line(running) == ("b", ["c"])
        other.cancel()


async def test_yield_of_a_free_group_changes_nothing(tmp_path: Path) -> None:
    async with orchestrator(configured(tmp_path)) as (running, client):
        before = running.scheduler.status().groups
        assert (await client.give_up("a")).success
        assert running.scheduler.jobs == {}
        assert running.scheduler.status().groups["g"].waiters == before["g"].waiters
        await client.acquire("a")
        for _ in range(3):
            assert (await client.give_up("a")).success


async def test_yield_by_another_than_the_holder_is_refused_and_names_it(tmp_path: Path) -> None:
    async with orchestrator(configured(tmp_path)) as (running, client):
        await client.acquire("a")
        code, text = await refused(client.give_up("b"))
        assert code is Code.PERMISSION_DENIED
        assert "'a'" in text
        assert line(running) == ("a", [])


async def test_a_queued_job_that_yields_leaves_the_line_and_its_acquire_ends(tmp_path: Path) -> None:
    async with orchestrator(configured(tmp_path)) as (running, client):
        await client.acquire("a")
        calls = [client.acquire("b"), client.acquire("b")]
        await until_line(running, "a", "b")
        await client.groups()  # which came after both, over the same connection
        assert (await client.give_up("b")).success
        assert line(running) == ("a", [])
        for call in calls:
            code, text = await refused(call)
            assert code is Code.ABORTED
            assert "left the line" in text
        again = client.acquire("b")
        await until_line(running, "a", "b")
        await client.give_up("a")
        assert (await again).success


@pytest.mark.parametrize(
    ("job", "group", "code", "said"),
    [
        ("", "g", Code.INVALID_ARGUMENT, "job_id is empty"),
        ("a", "", Code.INVALID_ARGUMENT, "group_id is empty"),
        ("a" * 257, "g", Code.INVALID_ARGUMENT, "at most 256"),
        ("é" * 129, "g", Code.INVALID_ARGUMENT, "at most 256"),
        ("a\nb", "g", Code.INVALID_ARGUMENT, "cannot be printed"),
        ("a", "g" * 257, Code.INVALID_ARGUMENT, "at most 256"),
        ("a", "h", Code.NOT_FOUND, "no group 'h'; there are: g"),
    ],
)
async def test_bad_names_are_refused_and_leave_nothing(
    tmp_path: Path, job: str, group: str, code: Code, said: str
) -> None:
    async with orchestrator(configured(tmp_path)) as (running, client):
        for call in (client.acquire(job, group), client.give_up(job, group)):
            found, text = await refused(call)
            assert found is code
            assert said in text
        assert running.scheduler.jobs == {}
        assert running.scheduler.waiting() == 0


async def test_names_of_256_bytes_are_taken(tmp_path: Path) -> None:
    async with orchestrator(configured(tmp_path)) as (running, client):
        assert (await client.acquire("a" * 256)).success
        assert line(running)[0] == "a" * 256


async def test_groups_are_listed_and_an_unknown_one_has_no_status(tmp_path: Path) -> None:
    async with orchestrator(configured(tmp_path, "trainers", "samplers")) as (_, client):
        assert await client.groups() == ["trainers", "samplers"]
        assert (await refused(client.status("x")))[0] is Code.NOT_FOUND
        assert (await refused(client.status("")))[0] is Code.INVALID_ARGUMENT


async def test_status_says_who_holds_and_who_stayed(tmp_path: Path) -> None:
    states = pb.GroupStatus
    async with orchestrator(configured(tmp_path)) as (running, client):
        idle = (await client.status()).group
        assert idle.group_state == states.STATE_IDLE
        await client.acquire("a")
        waiter = client.acquire("b")
        await until_line(running, "a", "b")
        answer = await client.status()
        held = answer.group
        assert (held.group_state, held.locking_job, held.active_job, held.loaded_job, held.waiter_queue_depth) == (
            states.STATE_LOCKED,
            "a",
            "a",
            "a",
            1,
        )
        assert [(s.agent, s.job_id, s.job_state) for s in answer.agent_job_states] == [
            ("0", "a", pb.SnapshotAgentJobState.STATE_RUNNING)
        ]
        waiter.cancel()
        await until_line(running, "a")
        assert (await client.give_up("a")).snapshot_deferred
        free = (await client.status()).group
        assert (free.group_state, free.locking_job, free.loaded_job) == (states.STATE_IDLE_YIELDED, "", "a")
        assert idle.state_timestamp.ToNanoseconds() <= held.state_timestamp.ToNanoseconds()
        assert held.state_timestamp.ToNanoseconds() <= free.state_timestamp.ToNanoseconds()


async def test_two_jobs_that_take_two_groups_in_opposite_order_are_told_of_the_cycle(tmp_path: Path) -> None:
    async with orchestrator(configured(tmp_path, "g", "h")) as (running, client):
        await client.acquire("a", "g")
        await client.acquire("b", "h")
        waiting = client.acquire("a", "h")
        await until_line(running, "b", "a", group="h")
        code, text = await refused(client.acquire("b", "g"))
        assert code is Code.FAILED_PRECONDITION
        assert "deadlock" in text
        assert "'a' holds g" in text
        assert "'b' holds h" in text
        await client.give_up("b", "h")
        assert (await waiting).success


async def test_a_lease_ends_with_the_longest_hold_and_not_for_want_of_heartbeats(tmp_path: Path) -> None:
    config = configured(
        tmp_path,
        groups={"g": {"lease_ttl_s": 0.3}, "h": {"max_hold_s": 0.2}},
    )
    async with orchestrator(config) as (running, client):
        await client.acquire("a", "g")
        async with running.scheduler.subscribe() as records:
            await client.acquire("a", "h")
            await until_line(running, None, group="h")
            renewals = 0
            async for record in records:
                renewals += isinstance(record.event, LeaseRenewed)
                if renewals == 5:
                    break
        assert line(running) == ("a", [])
        assert (await client.give_up("a", "h")).success


async def test_a_lost_lease_can_be_asked_for_again(tmp_path: Path) -> None:
    async with orchestrator(configured(tmp_path)) as (running, client):
        await client.acquire("a")
        await running.scheduler.lose_job("a", "its processes are gone")
        assert line(running) == (None, [])
        assert (await client.acquire("a")).success
        waiting = client.acquire("b")
        await until_line(running, "a", "b")
        await running.scheduler.lose_job("b", "its processes are gone")
        code, text = await refused(waiting)
        assert code is Code.ABORTED
        assert "its processes are gone" in text


async def test_a_thousand_waiters_at_once_are_all_in_line(tmp_path: Path) -> None:
    async with orchestrator(configured(tmp_path)) as (running, client):
        await client.acquire("a")
        calls = [client.acquire(f"j{number}") for number in range(1000)]
        await until(lambda: running.scheduler.waiting("g") == 1000, "all wait")
        order = line(running)[1]
        for call in calls:
            call.cancel()
        await until(lambda: running.scheduler.waiting("g") == 0, "all have left")
        assert sorted(order) == sorted(f"j{number}" for number in range(1000))
        assert line(running) == ("a", [])
