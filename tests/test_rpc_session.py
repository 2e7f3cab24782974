"""A worker's session: what is asked of one that has ended, and what it may say of its process."""

from __future__ import annotations

import anyio
import pytest

from tests.rpc_raw import hello
from tsched.backends import Order
from tsched.errors import ProcessGone
from tsched.rpc.session import Session
from tsched.rpc.v1 import worker_pb2 as pb

pytestmark = pytest.mark.anyio
ORDER = Order(1, "g", "0", "a", 1)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def session(trusted: bool = True) -> Session:
    return Session(hello().hello, trusted)


async def test_what_is_asked_of_a_dead_worker_fails_at_once() -> None:
    dead = session()
    dead.end(ProcessGone("it has exited"))
    with anyio.fail_after(20), pytest.raises(ProcessGone, match="it has exited"):
        await dead.ask(pb.KIND_PARK, ORDER)


async def test_one_that_is_done_has_left_nothing() -> None:
    done = session()
    done.end(None)
    with anyio.fail_after(20):
        assert (await done.ask(pb.KIND_PARK, ORDER)).HasField("done")
        assert (await done.ask(pb.KIND_PROBE, ORDER)).presence == pb.Presence(alive=True)
        assert (await done.ask(pb.KIND_SIZES, ORDER)).sizes == pb.Sizes()


async def test_an_order_under_way_ends_with_the_worker() -> None:
    async with anyio.create_task_group() as tasks:
        dying = session()

        async def ask() -> None:
            with pytest.raises(ProcessGone):
                await dying.ask(pb.KIND_PARK, ORDER)

        tasks.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        dying.end(ProcessGone("it has exited"))


async def test_a_process_is_believed_only_from_this_host() -> None:
    assert session(trusted=True).local
    assert not session(trusted=False).local
