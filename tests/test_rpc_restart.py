"""A scheduler that is killed and started again on the same socket finds its workers as they were."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.rpc_site import Told, has_orders, told, until, until_so, worker
from tsched import Group, Job, Scheduler
from tsched.errors import Invalid, LeaseLost
from tsched.journal import MemoryJournal
from tsched.rpc.hub import WorkerHub

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@asynccontextmanager
async def scheduler(folder: Path) -> AsyncIterator[Told]:
    async with told("scheduler", str(folder)) as process:
        assert await process.hear() == "serving"
        yield process


async def group(process: Told) -> dict[str, Any]:
    return dict(await process.do("status"))


async def reaches(process: Told, condition: Any, what: str) -> None:
    async def reached() -> bool:
        return bool(condition(await group(process)))

    await until_so(reached, what)


async def test_leases_and_waiting_requests_go_on_after_the_scheduler_was_killed(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/s.sock"
    async with scheduler(tmp_path) as first, worker(address, "a", state_bytes=60) as a:
        held = await a.do("acquire")
        async with worker(address, "b", state_bytes=60) as b, worker(address, "c", state_bytes=60) as c:
            await b.tell("acquire")
            await reaches(first, lambda seen: len(seen["waiters"]) == 1, "b is in line")
            await c.tell("acquire")
            await reaches(first, lambda seen: len(seen["waiters"]) == 2, "c is in line")
            first.process.kill()
            await first.process.wait()
            async with scheduler(tmp_path) as second:
                await reaches(second, lambda seen: seen["holder"]["attached"], "a is back")
                await reaches(second, lambda seen: all(w["attached"] for w in seen["waiters"]), "b and c are back")
                seen = await group(second)
                assert (seen["holder"]["job"], seen["holder"]["lease"]) == ("a", held["lease"])
                assert [waiter["job"] for waiter in seen["waiters"]] == ["b", "c"]
                assert await a.do("release", lease=held["lease"]) == "done"
                granted = await b.hear()
                assert granted["tokens"]["g"] > held["tokens"]["g"]
                assert await b.do("release", lease=granted["lease"]) == "done"
                assert (await c.hear())["tokens"]["g"] > granted["tokens"]["g"]


async def test_a_move_under_way_is_asked_again_by_its_operation(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/s.sock"
    async with (
        scheduler(tmp_path) as first,
        worker(address, "a", state_bytes=60, moves={"hangs": "park", "once": True}) as a,
        worker(address, "b", state_bytes=60) as b,
    ):
        held = await a.do("acquire")
        await a.do("release", lease=held["lease"])
        await b.tell("acquire")
        await has_orders(a)
        first.process.kill()
        await first.process.wait()
        async with scheduler(tmp_path):
            await b.hear()
            orders = await a.do("orders")
            assert len(orders) == 2
            assert orders[0] == orders[1]


async def test_a_worker_that_died_while_the_scheduler_was_away_loses_its_job(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/s.sock"
    async with (
        scheduler(tmp_path) as first,
        worker(address, "a", state_bytes=60) as a,
        worker(address, "b", state_bytes=60) as b,
    ):
        await a.do("acquire")
        await b.tell("acquire")
        await reaches(first, lambda seen: len(seen["waiters"]) == 1, "b is in line")
        first.process.kill()
        a.process.kill()
        await first.process.wait()
        async with scheduler(tmp_path):
            assert await b.hear()


async def test_the_same_hub_can_serve_again(tmp_path: Path) -> None:
    hub, address = WorkerHub(), f"unix:{tmp_path}/s.sock"
    async with Scheduler([Group("g")], backend=hub.backend) as scheduler, AsyncExitStack() as stack:
        async with hub.serve(scheduler, address):
            with pytest.raises(Invalid, match="serves already"):
                async with hub.serve(scheduler, f"unix:{tmp_path}/other.sock"):
                    pass
            a = await stack.enter_async_context(worker(address, "a"))
            b = await stack.enter_async_context(worker(address, "b"))
            held = await a.do("acquire")
            await b.tell("acquire")
            await until(lambda: bool(scheduler.status().groups["g"].waiters), "b is in line")
        async with hub.serve(scheduler, address):
            assert await a.do("release", lease=held["lease"]) == "done"
            await b.hear()


async def test_a_lease_from_before_is_taken_up_by_its_client_alone() -> None:
    journal = MemoryJournal()
    async with Scheduler([Group("g")], journal=journal) as before:
        await before.add_job(Job("a"))
        held = await before.acquire("a", "g", client="c", request=1)
        assert before.client_of(held.id) == "c"
        assert before.has_state("a")
        assert not before.has_state("b")
    async with Scheduler([Group("g")], journal=journal) as after:
        assert after.groups.keys() == {"g"}
        for lease, client in ((held.id, "other"), (held.id + 1, "c")):
            with pytest.raises(LeaseLost, match="has ended, or never was"):
                await after.attach(lease, client)
        again = await after.attach(held.id, "c")
        assert (again.id, again.tokens) == (held.id, held.tokens)
        await after.release(again)
        assert after.client_of(held.id) is None
