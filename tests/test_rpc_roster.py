"""What a job weighs, by what its workers say."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rpc_raw import hello
from tsched import Group, Job, Scheduler
from tsched.errors import Invalid
from tsched.rpc.roster import Roster
from tsched.rpc.session import Session

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def worker(client: str, **said: Any) -> Session:
    return Session(hello(client=client, **said).hello, trusted=True)


async def weighs(*workers: Session) -> Job:
    async with Scheduler([Group("g", nodes=("0", "1"))]) as scheduler:
        roster = Roster()
        for each in workers:
            await roster.join(scheduler, each)
        return scheduler.jobs["a"]


async def test_sizes_add_up_on_a_node_and_the_fullest_counts() -> None:
    job = await weighs(
        worker("x", state_bytes=1, turn_bytes=5),
        worker("y", state_bytes=2),
        worker("z", state_bytes=4, turn_bytes=4, node="1"),
    )
    assert job.state_bytes == {"g": 4}
    assert job.turn_bytes == {"g": 5}


async def test_one_unknown_size_makes_the_whole_unknown() -> None:
    assert (await weighs(worker("x", state_bytes=1), worker("y"))).state_bytes == {}
    assert (await weighs(worker("x"), worker("y", state_bytes=1))).state_bytes == {}


async def test_what_was_declared_of_the_job_stands_where_its_workers_name_no_size() -> None:
    async with Scheduler([Group("g")]) as scheduler:
        await scheduler.add_job(Job("a", state_bytes={"g": 7}))
        await Roster().join(scheduler, worker("x"))
        assert scheduler.jobs["a"].state_bytes == {"g": 7}


async def test_a_size_that_is_none_is_refused_and_changes_nothing() -> None:
    async with Scheduler([Group("g")]) as scheduler:
        roster, x = Roster(), worker("x", state_bytes=1)
        await roster.join(scheduler, x)
        for nonsense in (-1, 2**62):
            with pytest.raises(Invalid, match="state_bytes must be"):
                await roster.resize(scheduler, x, nonsense)
        await roster.join(scheduler, worker("y", state_bytes=2))
        assert scheduler.jobs["a"].state_bytes == {"g": 3}
        await roster.resize(scheduler, x, None)
        assert scheduler.jobs["a"].state_bytes == {}
        await roster.resize(scheduler, x, 5)
        assert scheduler.jobs["a"].state_bytes == {"g": 7}
