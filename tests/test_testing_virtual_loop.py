"""The virtual-time loop: jumps, order, rounding, deadlocks."""

from __future__ import annotations

import asyncio

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsched.errors import Deadlock
from tsched.testing.virtual_loop import VirtualLoop, run_virtual


def _loop() -> VirtualLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop


def test_a_year_passes_at_once() -> None:
    async def main() -> int:
        await anyio.sleep(365 * 86_400)
        return _loop().now_us

    assert run_virtual(main) == 365 * 86_400 * 1_000_000


def test_timers_fire_by_time_and_then_in_the_order_in_which_they_were_made() -> None:
    async def main() -> list[str]:
        seen: list[str] = []
        loop = _loop()
        done = anyio.Event()
        for name, when in (("late", 2.0), ("first", 1.0), ("second", 1.0), ("third", 1.0 + 1e-8), ("fourth", 1.0)):
            loop.call_at(when, seen.append, name)
        loop.call_at(3.0, done.set)
        await done.wait()
        return seen

    assert run_virtual(main) == ["first", "second", "third", "fourth", "late"]


def test_all_that_follows_from_a_timer_happens_before_the_next_timer_of_the_same_time() -> None:
    async def main() -> list[str]:
        seen: list[str] = []
        woken = anyio.Event()

        async def follow() -> None:
            await woken.wait()
            for _ in range(5):
                await anyio.lowlevel.checkpoint()
            seen.append("consequence")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follow)
            await anyio.lowlevel.checkpoint()
            loop = _loop()
            loop.call_later(1, woken.set)
            loop.call_later(1, seen.append, "next timer")
            await anyio.sleep(2)
        return seen

    assert run_virtual(main) == ["consequence", "next timer"]


def test_a_cancelled_timer_neither_fires_nor_takes_time() -> None:
    async def main() -> int:
        _loop().call_later(100, pytest.fail, "fired").cancel()
        with anyio.move_on_after(50):
            await anyio.sleep(1)
        await anyio.sleep(60)
        return _loop().now_us

    assert run_virtual(main) == 61_000_000


def test_a_deadline_is_reached_exactly() -> None:
    async def main() -> tuple[bool, int]:
        with anyio.move_on_after(0.25) as scope:
            await anyio.sleep_forever()
        return scope.cancelled_caught, _loop().now_us

    assert run_virtual(main) == (True, 250_000)


@given(st.lists(st.floats(0, 10, allow_nan=False), max_size=8))
def test_no_deadline_however_odd_keeps_time_from_going_on(delays: list[float]) -> None:
    async def main() -> int:
        for delay in delays:
            with anyio.move_on_after(delay):
                await anyio.sleep_forever()
        return _loop().now_us

    assert abs(run_virtual(main) - sum(delays) * 1e6) <= len(delays)


def test_waiting_for_what_never_comes_is_a_deadlock_that_says_who_waits() -> None:
    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.Event().wait, name="the poor waiter")
            await anyio.Event().wait()

    with pytest.raises(Deadlock, match="the poor waiter"):
        run_virtual(main)


def test_tasks_that_spin_without_time_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tsched.testing.virtual_loop.SPIN_LIMIT", 1000)

    async def main() -> None:
        while True:
            await anyio.lowlevel.checkpoint()

    with pytest.raises(Deadlock, match="time stands still"):
        run_virtual(main)
