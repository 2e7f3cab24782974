"""Orders are done once, fenced, one at a time, and survive those who gave them."""

from __future__ import annotations

import threading
import time

import anyio
import pytest

from tsched.backends import Order
from tsched.backends.orders import OrderBook
from tsched.errors import BackendError, HostMemoryFull, StaleToken

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def order(op: int, token: int = 1, job: str = "a") -> Order:
    return Order(op, "g", "0", job, token)


class Gate:
    """A move that waits to be let through."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.open = threading.Event()
        self.times = 0

    def __call__(self) -> None:
        self.times += 1
        self.began.set()
        assert self.open.wait(20)


async def until(event: threading.Event) -> None:
    assert await anyio.to_thread.run_sync(event.wait, 20)


async def test_the_same_op_is_done_once_and_answered_again() -> None:
    book, gate = OrderBook(), Gate()
    gate.open.set()
    await book.obey("park", order(1), gate)
    await book.obey("park", order(1), gate)
    assert gate.times == 1


async def test_a_second_caller_waits_for_the_same_move() -> None:
    book, gate = OrderBook(), Gate()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(book.obey, "park", order(1), gate)
        tasks.start_soon(book.obey, "park", order(1), gate)
        await until(gate.began)
        gate.open.set()
    assert gate.times == 1


async def test_a_cancelled_order_comes_to_its_end_and_is_found_done() -> None:
    book, gate = OrderBook(), Gate()
    with anyio.move_on_after(0.01):
        await book.obey("park", order(1), gate)
    await until(gate.began)
    with anyio.move_on_after(0.01) as probing:
        await book.settle("g", "0", "a", deadline_us=20_000_000)
    assert probing.cancelled_caught
    gate.open.set()
    await book.settle("g", "0", "a", deadline_us=20_000_000)
    await book.obey("park", order(1), gate)
    assert gate.times == 1


async def test_an_order_that_was_cancelled_before_it_was_given_can_be_given_again() -> None:
    book, gate = OrderBook(), Gate()
    gate.open.set()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await book.obey("park", order(1), gate)
    await book.obey("park", order(1), gate)
    assert gate.times == 1


async def test_a_smaller_token_is_stale_and_does_nothing() -> None:
    book, gate = OrderBook(), Gate()
    gate.open.set()
    await book.obey("park", order(1, token=5), gate)
    with pytest.raises(StaleToken, match=r"token 4 is stale, 5 was seen"):
        await book.obey("restore", order(2, token=4), gate)
    await book.obey("restore", order(2, token=1, job="b"), gate)
    assert gate.times == 2


async def test_an_order_that_has_not_begun_is_superseded_by_a_newer_one() -> None:
    book, running, never, newest = OrderBook(), Gate(), Gate(), Gate()
    newest.open.set()
    failures: list[BaseException] = []

    async def superseded() -> None:
        try:
            await book.obey("park", order(2), never)
        except BackendError as error:
            failures.append(error)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(book.obey, "restore", order(1), running)
        await until(running.began)
        tasks.start_soon(superseded)
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(book.obey, "restore", order(3), newest)
        await anyio.wait_all_tasks_blocked()
        assert not newest.began.is_set()
        running.open.set()
    assert (never.times, newest.times) == (0, 1)
    assert "superseded" in str(failures[0])


async def test_what_comes_first_can_end_a_move_that_hangs() -> None:
    book, hung, discard = OrderBook(), Gate(), Gate()
    discard.open.set()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(book.obey, "park", order(1), hung)
        await until(hung.began)
        with anyio.fail_after(20):
            await book.obey("discard", order(2), discard, first=hung.open.set)
    assert discard.times == 1


async def test_a_hung_move_of_one_job_delays_no_other() -> None:
    book, hung, free = OrderBook(), Gate(), Gate()
    free.open.set()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(book.obey, "park", order(1), hung)
        with anyio.fail_after(20):
            await book.obey("park", order(2, job="b"), free)
        hung.open.set()


@pytest.mark.parametrize(
    ("raised", "kind"),
    [(HostMemoryFull("full"), HostMemoryFull), (OSError("gone"), BackendError), (KeyError("k"), BackendError)],
)
async def test_what_became_of_a_failed_order_is_told_each_time(raised: Exception, kind: type[BackendError]) -> None:
    book, times = OrderBook(), 0

    def fail() -> None:
        nonlocal times
        times += 1
        raise raised

    for _ in range(2):
        with pytest.raises(kind):
            await book.obey("park", order(1), fail)
    assert times == 1


async def test_a_probe_waits_no_longer_than_its_deadline() -> None:
    book, hung = OrderBook(), Gate()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(book.obey, "park", order(1), hung)
        await until(hung.began)
        began = time.monotonic()
        await book.settle("g", "0", "a", deadline_us=20_000)
        assert 0.01 < time.monotonic() - began < 10
        await book.settle("g", "0", "a", deadline_us=0)
        hung.open.set()
