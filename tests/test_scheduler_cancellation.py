"""Cancel at any await: no lost waiter, no double grant, nothing left behind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import anyio
import pytest
from anyio.lowlevel import checkpoint
from hypothesis import given
from hypothesis import strategies as st

from tests.virtual import BACKENDS, run
from tsched import Group, Job, Scheduler, TschedError
from tsched.backends.fake import FakeBackend
from tsched.costs import FixedTable
from tsched.lease import Lease

GROUPS = ("g", "h")
JOBS = ("a", "b", "c")


@dataclass(frozen=True)
class Plan:
    """One client: when it starts, what it does, and when it is cancelled: after so much time and so many steps."""

    job: str
    groups: tuple[str, ...]
    style: Literal["hold", "acquire", "nested"]
    start_s: int
    work_s: int
    cancel_s: int | None
    cancel_steps: int


plans = st.builds(
    Plan,
    st.sampled_from(JOBS),
    st.sampled_from([("g",), ("h",), GROUPS]),
    st.sampled_from(["hold", "acquire", "nested"]),
    st.integers(0, 6),
    st.integers(0, 4),
    st.none() | st.integers(0, 12),
    st.integers(0, 8),
)


class Exclusive:
    """Who computes where; a second one on a group is a failure."""

    def __init__(self) -> None:
        self.computing: dict[str, str] = {}
        self.turns = 0

    async def work(self, job: str, lease: Lease, seconds: int) -> None:
        groups = lease.groups
        for name in groups:
            assert name not in self.computing, f"{job} was granted {name}, where {self.computing[name]} computes"
            self.computing[name] = job
        try:
            await anyio.sleep(seconds)
        finally:
            for name in groups:
                del self.computing[name]
        self.turns += 1


async def _client(plan: Plan, sched: Scheduler, exclusive: Exclusive) -> None:
    await anyio.sleep(plan.start_s)
    if plan.style == "acquire":
        lease = await sched.acquire(plan.job, plan.groups)
        try:
            await exclusive.work(plan.job, lease, plan.work_s)
        finally:
            await sched.release(lease)
    elif plan.style == "hold" or len(plan.groups) == 1:
        async with sched.hold(plan.job, plan.groups) as lease:
            await exclusive.work(plan.job, lease, plan.work_s)
    else:
        async with sched.hold(plan.job, "g") as outer:
            await anyio.sleep(plan.work_s)
            async with sched.hold(plan.job, "h", within=outer) as lease:
                await exclusive.work(plan.job, lease, plan.work_s)


async def _play(plans: list[Plan]) -> None:
    exclusive = Exclusive()
    backend = FakeBackend(costs=FixedTable(default_us=500_000))
    groups = [Group("g", capacity_bytes=2), Group("h")]
    async with Scheduler(groups, backend=backend) as sched:
        for name in JOBS:
            await sched.add_job(Job(name, state_bytes={"g": 1}))

        async def one(plan: Plan) -> None:
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as pair:
                    pair.start_soon(cancel, plan, scope)
                    await _client(plan, sched, exclusive)
                    pair.cancel_scope.cancel()

        async def cancel(plan: Plan, scope: anyio.CancelScope) -> None:
            if plan.cancel_s is None:
                return
            await anyio.sleep(plan.cancel_s)
            for _ in range(plan.cancel_steps):
                await checkpoint()
            scope.cancel()

        with anyio.fail_after(1000):
            async with anyio.create_task_group() as tasks:
                for plan in plans:
                    tasks.start_soon(one, plan)
        uncancelled = sum(plan.cancel_s is None for plan in plans)
        assert exclusive.turns >= uncancelled, "a waiter was lost"
        status = sched.status()
        for group in status.groups.values():
            assert group.holder is None, f"a lease is left on {group.name}"
            assert not group.waiters, f"a ghost waits for {group.name}"
        for name in JOBS:
            with anyio.fail_after(60):
                async with sched.hold(name, GROUPS):
                    pass


@pytest.mark.parametrize("backend", BACKENDS)
@given(st.lists(plans, min_size=1, max_size=7))
def test_whoever_is_cancelled_wherever_nobody_else_notices(backend: str, plans: list[Plan]) -> None:
    run(backend, lambda: _play(plans))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("steps", range(12))
def test_a_grant_that_crosses_a_cancellation_is_given_back(backend: str, steps: int) -> None:
    """The waiter is cancelled in each of the steps around the one in which it is granted."""

    async def main() -> None:
        async with Scheduler([Group("g", capacity_bytes=9)]) as sched:
            for name in "ab":
                await sched.add_job(Job(name, state_bytes={"g": 1}))
            lease = await sched.acquire("a", "g")
            async with anyio.create_task_group() as tasks:
                scope = anyio.CancelScope()

                async def wait() -> None:
                    with scope:
                        granted = await sched.acquire("b", "g")
                        await sched.release(granted)

                async def release() -> None:
                    for _ in range(5):
                        await checkpoint()
                    await sched.release(lease)

                tasks.start_soon(wait)
                tasks.start_soon(release)
                for _ in range(steps):
                    await checkpoint()
                scope.cancel()
            assert sched.status().groups["g"].holder is None
            assert not sched.status().groups["g"].waiters

    run(backend, main)


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_of_two_who_wait_for_one_request_may_give_up(backend: str) -> None:
    async def main() -> None:
        async with Scheduler([Group("g")]) as sched:
            await sched.add_job(Job("a"))
            lease = await sched.acquire("a", "g")
            scope = anyio.CancelScope()
            got: list[Lease] = []

            async def patient() -> None:
                got.append(await sched.acquire("a", "g", client="c", request=1))

            async def impatient() -> None:
                with scope:
                    await sched.acquire("a", "g", client="c", request=1)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(patient)
                tasks.start_soon(impatient)
                await anyio.sleep(1)
                scope.cancel()
                await anyio.sleep(1)
                await sched.release(lease)
            assert got[0].held

    run(backend, main)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_scheduler_may_be_cancelled_with_everything_in_it(backend: str) -> None:
    async def main() -> None:
        ended: list[str] = []

        async def client(sched: Scheduler, name: str) -> None:
            try:
                async with sched.hold(name, "g"):
                    await anyio.sleep(50)
            except TschedError:
                ended.append(name)

        with anyio.move_on_after(3) as scope:
            async with Scheduler([Group("g")]) as sched, anyio.create_task_group() as tasks:
                for name in "ab":
                    await sched.add_job(Job(name))
                    tasks.start_soon(client, sched, name)
        assert scope.cancelled_caught
        assert ended == []

    run(backend, main)
