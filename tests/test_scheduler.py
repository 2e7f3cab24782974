"""The live scheduler as its embedder sees it, under asyncio and trio, in virtual time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

import tsched
from tests.virtual import BACKENDS, run, settle
from tsched import Group, Job, Scheduler
from tsched.backends.fake import FakeBackend
from tsched.costs import FixedTable
from tsched.faults import FaultRates, Faults

Main = Callable[[Callable[[], Awaitable[None]]], None]


@pytest.fixture(params=BACKENDS)
def virtual(request: pytest.FixtureRequest) -> Main:
    def runner(main: Callable[[], Awaitable[None]]) -> None:
        run(request.param, main)

    return runner


def test_the_example_of_the_readme_runs(virtual: Main) -> None:
    async def main() -> None:
        groups = [Group("trainers", capacity_bytes=80 << 30), Group("samplers")]
        async with Scheduler(groups, policy="fair_share") as sched:
            await sched.add_job(Job("a", owner="team-x", weight=2, state_bytes={"trainers": 24 << 30}))
            async with sched.hold("a", "trainers", phase="train", estimate_s=30) as lease:
                assert (lease.token, lease.waited_s, lease.restored) == (1, 0.0, False)
                holder = sched.status().groups["trainers"].holder
                assert holder is not None
                assert (holder.job, holder.phase) == ("a", "train")
            assert sched.status().groups["trainers"].holder is None

    virtual(main)


def test_turns_are_exclusive_in_order_and_with_growing_tokens(virtual: Main) -> None:
    async def main() -> None:
        seen: list[tuple[str, int, float]] = []

        async def client(name: str) -> None:
            async with sched.hold(name, "g") as lease:
                seen.append((name, lease.token, lease.waited_s))
                await anyio.sleep(2)

        async with Scheduler([Group("g", capacity_bytes=10)]) as sched:
            for name in "abc":
                await sched.add_job(Job(name, state_bytes={"g": 1}))
            async with anyio.create_task_group() as tasks:
                for name in "abc":
                    tasks.start_soon(client, name)
                    await settle()
        assert [name for name, _, _ in seen] == ["a", "b", "c"]
        assert [token for _, token, _ in seen] == [1, 2, 3]
        assert [round(waited) for _, _, waited in seen] == [0, 2, 4]

    virtual(main)


def test_several_groups_come_at_once_and_may_be_given_back_one_by_one(virtual: Main) -> None:
    async def main() -> None:
        async with Scheduler([Group("t"), Group("s")]) as sched:
            await sched.add_job(Job("a"))
            lease = await sched.acquire("a", ["t", "s"])
            assert dict(lease.tokens) == {"t": 1, "s": 1}
            with pytest.raises(tsched.Invalid):
                _ = lease.token
            await lease.release("t")
            assert lease.groups == ("s",)
            assert lease.token == 1
            async with sched.hold("a", "t") as other:
                assert other.token == 2
            with pytest.raises(tsched.Invalid, match="is not on group 't'"):
                await sched.release(lease, "t")
            await sched.release(lease)
            await sched.release(lease)
            assert not lease.held
            assert lease.lost_reason is None

    virtual(main)


def test_a_switch_is_paid_and_reported_by_who_needs_it(virtual: Main) -> None:
    async def main() -> None:
        backend = FakeBackend(costs=FixedTable(park={"g": 3_000_000}, restore={"g": 2_000_000}))
        async with Scheduler([Group("g")], backend=backend) as sched:
            for name in "ab":
                await sched.add_job(Job(name, state_bytes={"g": 64}))
            async with sched.hold("a", "g") as lease:
                assert not lease.restored
            async with sched.hold("b", "g") as lease:
                assert lease.waited_s == 3.0
                assert sched.status().jobs["a"].places == {"g": "parked"}
            async with sched.hold("a", "g") as lease:
                assert lease.restored
                assert lease.waited_s == 5.0

    virtual(main)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("a", "nowhere"), tsched.UnknownGroup),
        (("nobody", "g"), tsched.UnknownJob),
        (("huge", "g"), tsched.NeverFits),
        (("a", []), tsched.AcquireRefused),
        (("a", ["g", "g"]), tsched.AcquireRefused),
    ],
)
def test_what_can_never_be_granted_is_a_typed_error(
    virtual: Main, arguments: tuple[Any, Any], error: type[Exception]
) -> None:
    async def main() -> None:
        async with Scheduler([Group("g", capacity_bytes=10)]) as sched:
            await sched.add_job(Job("a", state_bytes={"g": 1}))
            await sched.add_job(Job("huge", state_bytes={"g": 11}))
            with pytest.raises(error):
                await sched.acquire(*arguments)
            async with sched.hold("a", "g"):
                pass

    virtual(main)


def test_a_nested_acquire_that_closes_a_cycle_is_refused(virtual: Main) -> None:
    async def main() -> None:
        async with Scheduler([Group("t"), Group("s")]) as sched:
            for name in "ab":
                await sched.add_job(Job(name))
            mine = await sched.acquire("a", "t")
            other = await sched.acquire("b", "s")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lambda: sched.acquire("a", "s", within=mine))
                await settle()
                with pytest.raises(tsched.WouldDeadlock, match="'a'"):
                    await sched.acquire("b", "t", within=other)
                await sched.release(other)

    virtual(main)


def test_a_lease_that_is_not_renewed_is_lost_and_its_holder_told(virtual: Main) -> None:
    async def main() -> None:
        async with Scheduler([Group("g", lease_ttl_us=10_000_000)]) as sched:
            await sched.add_job(Job("a"))
            async with sched.hold("a", "g") as lease:
                for _ in range(3):
                    await anyio.sleep(9)
                    await lease.renew()
                assert lease.held

            async def forget_to_renew() -> None:
                nonlocal lease
                async with sched.hold("a", "g") as lease:
                    await lease.lost.wait()
                    assert sched.status().now_s == 37.0

            with pytest.raises(tsched.LeaseLost, match="not renewed"):
                await forget_to_renew()
            with pytest.raises(tsched.LeaseLost):
                await lease.renew()
            with pytest.raises(tsched.LeaseLost):
                await sched.release(lease)

    virtual(main)


def test_the_body_of_a_lost_lease_is_cancelled_on_request(virtual: Main) -> None:
    async def main() -> None:
        async with Scheduler([Group("g", max_hold_us=5_000_000)]) as sched:
            await sched.add_job(Job("a"))
            ended: list[float] = []

            async def stay() -> None:
                async with sched.hold("a", "g", on_lost="cancel"):
                    try:
                        await anyio.sleep(100)
                    finally:
                        ended.append(sched.status().now_s)

            with pytest.raises(tsched.LeaseLost, match="max_hold_us"):
                await stay()
            assert ended == [5.0]

    virtual(main)


def test_a_turn_that_is_suspended_goes_on_with_a_new_token(virtual: Main) -> None:
    async def main() -> None:
        group = Group("g", max_phase_us=5_000_000, suspendable=True)
        async with Scheduler([group], backend=FakeBackend()) as sched:
            for name in "ab":
                await sched.add_job(Job(name))
            async with sched.hold("a", "g") as lease, anyio.create_task_group() as tasks:
                first = lease.token
                tasks.start_soon(_turn, sched, "b", 2.0)
                await anyio.sleep(6)
                assert lease.suspended
                assert sched.status().suspended == (lease.id,)
                await lease.resumed()
                assert not lease.suspended
                assert lease.token > first
                assert 7 <= sched.status().now_s < 7.1

    virtual(main)


async def _turn(sched: Scheduler, job: str, length_s: float) -> None:
    async with sched.hold(job, "g"):
        await anyio.sleep(length_s)


def test_a_job_that_leaves_takes_its_requests_and_leases_with_it(virtual: Main) -> None:
    async def main() -> None:
        async with Scheduler([Group("g")]) as sched:
            for name in "ab":
                await sched.add_job(Job(name))
            errors: list[Exception] = []

            async def wait() -> None:
                try:
                    await sched.acquire("b", "g")
                except tsched.AcquireRefused as error:
                    errors.append(error)

            lease = await sched.acquire("a", "g")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(wait)
                await settle()
                await sched.remove_job("b")
            assert [error.code for error in errors if isinstance(error, tsched.AcquireRefused)] == ["job_left"]
            await sched.lose_job("a", "out of memory")
            assert lease.lost.is_set()
            assert "out of memory" in (lease.lost_reason or "")
            with pytest.raises(tsched.UnknownJob):
                await sched.remove_job("a")
            assert not sched.jobs

    virtual(main)


def test_what_operators_say_of_things_that_are_not_there_is_an_error(virtual: Main) -> None:
    async def main() -> None:
        async with Scheduler([Group("g", nodes=("n0", "n1"))]) as sched:
            await sched.add_job(Job("a"))
            with pytest.raises(tsched.DuplicateJob):
                await sched.add_job(Job("a"))
            for call in (sched.remove_job("b"), sched.readmit("b"), sched.update_job(Job("b"))):
                with pytest.raises(tsched.UnknownJob):
                    await call
            with pytest.raises(tsched.UnknownGroup):
                await sched.node_lost("h", "n0")
            for call in (sched.node_lost("g", "n9"), sched.node_returned("g", "n0"), sched.readmit("a")):
                with pytest.raises(tsched.Invalid):
                    await call
            with pytest.raises(tsched.Invalid):
                await sched.force_eviction("g", "a")
            with pytest.raises(tsched.LeaseLost):
                await sched.release(77)

    virtual(main)


def test_a_lost_node_keeps_its_group_from_new_turns_until_it_returns(virtual: Main) -> None:
    async def main() -> None:
        async with Scheduler([Group("g", nodes=("n0", "n1"))]) as sched:
            await sched.add_job(Job("a"))
            await sched.node_lost("g", "n1", "cable")
            assert sched.status().groups["g"].lost == {"n1": "cable"}
            with anyio.move_on_after(60) as scope:
                await sched.acquire("a", "g")
            assert scope.cancelled_caught
            await sched.node_returned("g", "n1")
            async with sched.hold("a", "g"):
                pass

    virtual(main)


def test_a_job_whose_park_fails_is_quarantined_alone(virtual: Main) -> None:
    async def main() -> None:
        class Stubborn(FakeBackend):
            async def park(self, order: Any) -> None:
                if order.job == "bad":
                    raise ZeroDivisionError("a bug in the backend")
                await super().park(order)

        async with Scheduler([Group("g", retries=1)], backend=Stubborn()) as sched:
            for name in ("bad", "good", "other"):
                await sched.add_job(Job(name))
            await _turn(sched, "bad", 1)
            await _turn(sched, "good", 1)
            await _turn(sched, "other", 1)
            assert "failed 2 times" in (sched.status().jobs["bad"].quarantined or "")
            with pytest.raises(tsched.JobQuarantined):
                await sched.acquire("bad", "g")
            await sched.readmit("bad")
            await _turn(sched, "bad", 1)

    virtual(main)


def test_a_move_that_hangs_is_given_up_in_time(virtual: Main) -> None:
    async def main() -> None:
        backend = FakeBackend(faults=Faults(1, FaultRates(hang=1.0)))
        async with Scheduler([Group("g", move_timeout_us=2_000_000, retries=0)], backend=backend, drain_s=0) as sched:
            for name in "ab":
                await sched.add_job(Job(name))
            await _turn(sched, "a", 1)
            with anyio.move_on_after(30):
                await sched.acquire("b", "g")
            assert sched.status().jobs["a"].quarantined is not None

    virtual(main)


def test_the_same_request_twice_is_one_request(virtual: Main) -> None:
    async def main() -> None:
        async with Scheduler([Group("g")]) as sched:
            for name in "ab":
                await sched.add_job(Job(name))
            first = await sched.acquire("a", "g", client="w1", request=7)
            assert await sched.acquire("a", "g", client="w1", request=7) is first
            got: list[object] = []

            async def ask() -> None:
                got.append(await sched.acquire("b", "g", client="w2", request=1))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask)
                tasks.start_soon(ask)
                await settle()
                assert len(sched.status().groups["g"].waiters) == 1
                await sched.release(first)
            assert got[0] is got[1]

    virtual(main)
