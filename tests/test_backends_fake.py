"""The fake backend holds real bytes, runs out of memory, remembers what it did, and fails as it is told to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import pytest
import trio
import trio.testing

from tsched.backends import Backend, Order, Presence, Sizes
from tsched.backends.fake import FakeBackend
from tsched.backends.moves import carry_out
from tsched.costs import Bandwidth, FixedTable
from tsched.errors import BackendError, HostMemoryFull, Invalid, StaleToken
from tsched.events import Discarded, JobLost, MoveFailed, Parked
from tsched.faults import FaultRates, Faults
from tsched.model import Group
from tsched.testing import run_virtual
from tsched.testing.backend_suite import check_backend

COSTS = FixedTable(park={"g": 2_000}, restore={"g": 1_000})
PLACE = ("g", "0", "a")


def order(op: int, job: str = "a", token: int = 1, **more: int) -> Order:
    return Order(op, "g", "0", job, token, **more)


async def look(backend: Backend, job: str = "a", deadline_us: int = 0) -> Presence:
    return await backend.probe("g", "0", job, deadline_us=deadline_us)


def now_us() -> int:
    return round(anyio.current_time() * 1_000_000)


def virtual(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    def run() -> None:
        run_virtual(test)

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


def test_it_keeps_the_contract_of_backends_under_asyncio() -> None:
    run_virtual(_keeps_the_contract)


def test_it_keeps_the_contract_of_backends_under_trio() -> None:
    trio.run(_keeps_the_contract, clock=trio.testing.MockClock(autojump_threshold=0))


async def _keeps_the_contract() -> None:
    for costs in (FixedTable(), COSTS, Bandwidth(1_000_000, 50)):
        await check_backend(
            lambda costs=costs: FakeBackend(costs=costs, capacity_bytes={"g": 10_000}, host_bytes=9_000),  # type: ignore[misc]
            size_bytes=3_000,
            capacity_bytes=10_000,
            host_bytes=9_000,
        )


def test_it_is_a_backend() -> None:
    assert isinstance(FakeBackend(), Backend)
    assert FakeBackend().suspendable
    assert not FakeBackend(suspendable=False).suspendable


@virtual
async def test_a_round_trip_takes_its_time_and_changes_no_bit() -> None:
    backend = FakeBackend(costs=COSTS)
    backend.allocate(*PLACE, 100)
    backend.work(*PLACE)
    before = backend.contents(*PLACE)
    await backend.park(order(1))
    assert (now_us(), await look(backend)) == (2_000, Presence(0, 100))
    await backend.restore(order(2))
    assert (now_us(), await look(backend)) == (3_000, Presence(100, 0))
    assert backend.contents(*PLACE) == before


@virtual
async def test_jobs_on_nodes_move_at_the_same_time() -> None:
    backend = FakeBackend(costs=COSTS)
    async with anyio.create_task_group() as tasks:
        for node in "012":
            backend.allocate("g", node, "a", 10)
            tasks.start_soon(backend.park, Order(1, "g", node, "a", 1))
    assert now_us() == 2_000


@virtual
async def test_a_damaged_state_is_not_restored() -> None:
    backend = FakeBackend()
    backend.allocate(*PLACE, 100)
    await backend.park(order(1))
    backend.corrupt(*PLACE)
    with pytest.raises(BackendError, match="checksum"):
        await backend.restore(order(2))
    assert await look(backend) == Presence(0, 100)


@virtual
async def test_large_states_are_cheap_and_states_of_unknown_size_are_seen() -> None:
    backend = FakeBackend()
    backend.allocate(*PLACE, 24 << 30)
    assert (await look(backend)).resident_bytes == 24 << 30
    assert len(backend.contents(*PLACE)) == 4096
    assert await backend.sizes(*PLACE) == Sizes(24 << 30)
    await backend.park(order(1, "unknown"))
    assert await look(backend, "unknown") == Presence(0, 1)


@virtual
async def test_the_device_refuses_what_does_not_fit_and_changes_nothing() -> None:
    backend = FakeBackend(capacity_bytes={"g": 150})
    backend.allocate(*PLACE, 100)
    with pytest.raises(BackendError, match="g/0 is out of memory: 200 bytes are needed, 150 are there"):
        backend.allocate("g", "0", "b", 100)
    await backend.park(order(1))
    backend.allocate("g", "0", "b", 100)
    with pytest.raises(BackendError, match="out of memory"):
        await backend.restore(order(2))
    assert [await look(backend), await look(backend, "b")] == [Presence(0, 100), Presence(100, 0)]
    backend.allocate("g", "1", "a", 150)
    backend.allocate("h", "0", "a", 10**9)


@virtual
async def test_a_restore_takes_its_room_from_its_start() -> None:
    backend = FakeBackend(costs=COSTS, capacity_bytes={"g": 150})
    backend.allocate(*PLACE, 100)
    await backend.park(order(1))
    with anyio.move_on_after(0.0005):
        await backend.restore(order(2))
    with pytest.raises(BackendError, match="out of memory"):
        backend.allocate("g", "0", "b", 100)
    await backend.park(order(3))
    backend.allocate("g", "0", "b", 100)


@virtual
async def test_a_full_host_refuses_before_anything_moves() -> None:
    backend = FakeBackend(costs=COSTS, host_bytes=150)
    for job in "ab":
        backend.allocate("g", "0", job, 100)
    await backend.park(order(1))
    began = now_us()
    with pytest.raises(HostMemoryFull, match="200 bytes would be parked, 150 may be"):
        await backend.park(order(2, "b"))
    assert (now_us(), await look(backend, "b")) == (began, Presence(100, 0))


@virtual
async def test_an_order_asked_again_answers_what_became_of_it_and_does_nothing() -> None:
    backend = FakeBackend(costs=COSTS, faults=Faults(0, FaultRates(fail=1.0)))
    backend.allocate(*PLACE, 100)
    for _ in range(3):
        with pytest.raises(BackendError, match="injected"):
            await backend.park(order(1))
    assert now_us() == 2_000


@virtual
async def test_who_asks_for_an_order_under_way_waits_for_its_end() -> None:
    backend = FakeBackend(costs=COSTS)
    backend.allocate(*PLACE, 100)
    with anyio.move_on_after(0.0005):
        await backend.park(order(1))
    assert (await look(backend)).resident_bytes == 100
    await backend.park(order(1))
    assert (now_us(), await look(backend)) == (2_000, Presence(0, 100))


@virtual
async def test_an_order_goes_on_when_its_scheduler_is_gone() -> None:
    backend = FakeBackend(costs=COSTS)
    backend.allocate(*PLACE, 100)
    with anyio.move_on_after(0.0005):
        await backend.park(order(1))
    await anyio.sleep(0.002)
    assert await look(backend) == Presence(0, 100)
    began = now_us()
    await backend.park(order(1))
    assert now_us() == began


@virtual
async def test_a_newer_order_takes_the_place_of_one_under_way() -> None:
    backend = FakeBackend(costs=COSTS)
    backend.allocate(*PLACE, 100)
    caught: list[str] = []

    async def park() -> None:
        with pytest.raises(BackendError) as error:
            await backend.park(order(1))
        caught.append(str(error.value))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(park)
        await anyio.sleep(0.0005)
        await backend.restore(order(2, token=2))
    assert caught == ["park (op 1) was superseded by op 2"]
    assert await look(backend) == Presence(100, 0)


@virtual
async def test_a_stale_token_is_refused_at_once_and_by_job() -> None:
    backend = FakeBackend()
    for job in "ab":
        backend.allocate("g", "0", job, 100)
    await backend.park(order(1, token=7))
    with pytest.raises(StaleToken, match="token 6 is stale, 7 was seen"):
        await backend.restore(order(2, token=6))
    await backend.park(order(3, "b", token=1))
    assert [await look(backend), await look(backend, "b")] == [Presence(0, 100), Presence(0, 100)]


@virtual
async def test_a_lie_is_seen_by_the_probe_and_put_right_by_the_next_order() -> None:
    backend = FakeBackend(costs=COSTS, faults=Faults(0, FaultRates(lie=1.0)))
    backend.allocate(*PLACE, 100)
    await backend.park(order(1))
    assert await look(backend, deadline_us=50_000) == Presence(100, 0)
    assert now_us() == 50_000
    backend._faults = Faults()
    assert await carry_out(backend, "park", order(2), 10_000) == Parked(2, "0")


@virtual
async def test_a_late_park_is_acknowledged_before_its_memory_is_free() -> None:
    backend = FakeBackend(costs=COSTS, faults=Faults(0, FaultRates(late=1.0)))
    backend.allocate(*PLACE, 100)
    await backend.park(order(1))
    assert (now_us(), await look(backend)) == (0, Presence(100, 0))
    assert await look(backend, deadline_us=50_000) == Presence(0, 100)
    assert now_us() == 6_000


@virtual
async def test_a_late_park_succeeds_after_its_driver_has_given_up() -> None:
    backend = FakeBackend(costs=COSTS, faults=Faults(0, FaultRates(late=1.0)))
    backend.allocate(*PLACE, 100)
    assert isinstance(await carry_out(backend, "park", order(1), 4_000), MoveFailed)
    assert await look(backend) == Presence(100, 0)
    await anyio.sleep(0.002)
    assert await look(backend) == Presence(0, 100)


@virtual
async def test_a_lost_job_is_dead_until_it_is_discarded_and_started_anew() -> None:
    backend = FakeBackend(costs=COSTS, faults=Faults(0, FaultRates(lose=1.0)))
    backend.allocate(*PLACE, 100)
    backend.allocate("g", "0", "b", 100)
    assert isinstance(await carry_out(backend, "park", order(1), 10_000), JobLost)
    assert await look(backend) == Presence(0, 0, alive=False)
    assert await carry_out(backend, "discard", order(2), 10_000) == Discarded(2, "0")
    assert await look(backend, "b") == Presence(100, 0)
    backend.allocate(*PLACE, 50)
    assert await look(backend) == Presence(50, 0)


@virtual
async def test_a_scheduler_can_run_on_it_without_jobs() -> None:
    backend = FakeBackend(costs=Bandwidth(1_000_000))
    assert await carry_out(backend, "park", order(1, size_bytes=100), 10_000) == Parked(1, "0")
    assert (now_us(), await look(backend)) == (100, Presence(0, 100))
    await backend.restore(order(2, size_bytes=100))
    assert await look(backend) == Presence(100, 0)


@virtual
async def test_what_is_parked_nowhere_cannot_be_restored() -> None:
    backend = FakeBackend()
    with pytest.raises(BackendError, match="job 'a' has nothing parked on g/0"):
        await backend.restore(order(1))


@virtual
async def test_a_job_cannot_use_what_is_not_there() -> None:
    backend = FakeBackend()
    for use in (backend.work, backend.contents):
        with pytest.raises(BackendError, match="restore it first"):
            use(*PLACE)
    with pytest.raises(BackendError, match="park it first"):
        backend.corrupt(*PLACE)
    backend.allocate(*PLACE, 1)
    with pytest.raises(BackendError, match="discard that first"):
        backend.allocate(*PLACE, 1)


@virtual
async def test_faults_are_drawn_by_the_number_of_the_order_or_else_of_the_call() -> None:
    faults = Faults(2, FaultRates(fail=0.5))
    expected = [faults.draw("a", n).value == "fail" for n in range(12)]
    for numbered in (True, False):
        backend, seen = FakeBackend(faults=faults), []
        for n in range(12):
            event = await carry_out(backend, "park", order(n, number=n) if numbered else order(n), 10_000)
            seen.append(isinstance(event, MoveFailed))
        assert seen == expected
    assert len(set(expected)) == 2


def test_it_takes_its_capacity_from_groups() -> None:
    backend = FakeBackend.for_groups([Group("g", capacity_bytes=10), Group("h")])
    backend.allocate("h", "0", "a", 11)
    with pytest.raises(BackendError):
        backend.allocate("g", "0", "a", 11)


def test_a_buffer_of_no_bytes_is_refused() -> None:
    with pytest.raises(Invalid, match="buffer_bytes must be >= 1, not 0"):
        FakeBackend(buffer_bytes=0)


class Broken(FakeBackend):
    async def park(self, order: Order) -> None:
        raise KeyError("a bug")

    async def probe(self, group: str, node: str, job: str, *, deadline_us: int) -> Presence:
        raise OSError("no probe either")


@virtual
async def test_a_bug_in_a_backend_is_a_failed_move_and_no_crash() -> None:
    assert await carry_out(Broken(), "park", order(1), 1_000) == MoveFailed(1, "0", "'a bug'")
    assert await carry_out(Broken(), "restore", order(2), 1_000) == MoveFailed(
        2, "0", "job 'a' has nothing parked on g/0"
    )
