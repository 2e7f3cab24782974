"""Jobs in processes of their own take turns over the channel, and no death of one of them stops the others."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.rpc_site import Told, has_orders, site, told, until, worker
from tsched import Group

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_turns_alternate_and_orders_reach_the_worker_with_tokens(tmp_path: Path) -> None:
    async with (
        site(tmp_path) as here,
        worker(here.address, "a", state_bytes=60) as a,
        worker(here.address, "b", state_bytes=60) as b,
    ):
        order = [await turn(process) for _ in range(2) for process in (a, b)]
        assert [grant["restored"] for grant in order] == [False, False, True, True]
        tokens = [grant["tokens"]["g"] for grant in order]
        assert tokens == sorted(set(tokens))
        kinds = [kind for kind, _, _ in await a.do("orders")]
        assert kinds == ["park", "restore", "park"]
        for process in (a, b):
            seen = [token for _, _, token in await process.do("orders")]
            assert seen == sorted(seen)
            assert await process.do("close") == "done"
        await until(lambda: not here.scheduler.jobs, "both jobs are removed")
        assert not here.hub.workers


async def turn(process: Told) -> dict[str, Any]:
    grant = await process.do("acquire", phase="train")
    assert await process.do("release", lease=grant["lease"]) == "done"
    return dict(grant)


async def test_one_that_waits_is_granted_when_the_holder_releases(tmp_path: Path) -> None:
    async with (
        site(tmp_path) as here,
        worker(here.address, "a", state_bytes=1) as a,
        worker(here.address, "b", state_bytes=1) as b,
    ):
        held = await a.do("acquire")
        await b.tell("acquire")
        await until(lambda: here.waiting() == ["b"], "b is in line")
        await a.do("release", lease=held["lease"])
        assert (await b.hear())["tokens"]["g"] > held["tokens"]["g"]


@pytest.mark.parametrize("doing", ["holds", "waits", "is parked", "moves"])
async def test_a_killed_worker_loses_its_job_and_the_others_go_on(tmp_path: Path, doing: str) -> None:
    async with site(tmp_path) as here:
        moves = {"hangs": "park"} if doing == "moves" else {}
        async with (
            worker(here.address, "a", state_bytes=60, moves=moves) as a,
            worker(here.address, "b", state_bytes=60) as b,
        ):
            held: dict[str, Any] = {}
            if doing == "waits":
                held = await b.do("acquire")
                await a.tell("waits")
                await until(lambda: here.waiting() == ["a"], "a waits")
            else:
                lease = await a.do("acquire")
                if doing != "holds":
                    await a.do("release", lease=lease["lease"])
                    await b.tell("acquire")
                if doing == "is parked":
                    held = await b.hear()
                if doing == "moves":
                    await has_orders(a)
            a.process.kill()
            await until(lambda: "a" not in here.scheduler.jobs, "job a is lost")
            if doing == "holds":
                held = await b.do("acquire")
            elif doing == "moves":
                held = await b.hear()
            assert await b.do("release", lease=held["lease"]) == "done"
            assert await turn(b)
            assert here.scheduler.jobs.keys() == {"b"}


async def test_a_frozen_worker_is_not_dead(tmp_path: Path) -> None:
    async with (
        site(tmp_path, grace_s=0.2) as here,
        worker(here.address, "a", state_bytes=60) as a,
        worker(here.address, "b", state_bytes=30) as b,
    ):
        held = await a.do("acquire")
        os.kill(a.process.pid, signal.SIGSTOP)
        await b.tell("acquire")
        await anyio.sleep(1)
        assert here.holder() == "a"
        assert here.waiting() == ["b"]
        os.kill(a.process.pid, signal.SIGCONT)
        assert await a.do("release", lease=held["lease"]) == "done"
        await b.hear()


async def test_a_lease_with_a_time_to_live_is_renewed_by_itself_and_ends_when_frozen(tmp_path: Path) -> None:
    async with (
        site(tmp_path) as here,
        worker(here.address, "a", state_bytes=1) as a,
        worker(here.address, "b", state_bytes=1) as b,
    ):
        held = await a.do("acquire", ttl_s=0.6)
        await b.tell("acquire")
        await anyio.sleep(1.5)
        assert here.holder() == "a"
        os.kill(a.process.pid, signal.SIGSTOP)
        await until(lambda: here.holder() != "a", "the lease ends")
        os.kill(a.process.pid, signal.SIGCONT)
        await b.hear()
        lost = await a.do("release", lease=held["lease"])
        assert lost["error"] == "LeaseLost"
        assert "not renewed in time" in lost["text"]


async def test_the_lease_time_of_a_group_is_renewed_without_the_worker_asking_for_it(tmp_path: Path) -> None:
    async with site(tmp_path, Group("g", lease_ttl_us=500_000)) as here, worker(here.address, "a") as a:
        held = await a.do("acquire")
        await anyio.sleep(1.2)
        assert here.holder() == "a"
        assert await a.do("renew", lease=held["lease"]) == "done"


async def test_a_request_that_timed_out_has_left_the_line(tmp_path: Path) -> None:
    async with site(tmp_path) as here, worker(here.address, "a") as a, worker(here.address, "b") as b:
        held = await a.do("acquire")
        answer = await b.do("acquire", timeout_s=0.1)
        assert answer["error"] == "AcquireRefused"
        assert answer["code"] == "timed_out"
        await until(lambda: not here.waiting(), "b has left the line")
        await a.do("release", lease=held["lease"])
        assert here.holder() is None


async def test_an_interrupted_acquire_is_withdrawn(tmp_path: Path) -> None:
    async with site(tmp_path) as here, worker(here.address, "a") as a, worker(here.address, "b") as b:
        await a.do("acquire")
        await b.tell("acquire")
        await until(lambda: here.waiting() == ["b"], "b is in line")
        b.process.send_signal(signal.SIGINT)
        assert (await b.hear())["error"] == "KeyboardInterrupt"
        await until(lambda: not here.waiting(), "b has left the line")


async def test_a_failed_park_quarantines_that_job_alone(tmp_path: Path) -> None:
    async with (
        site(tmp_path, Group("g", capacity_bytes=100, retries=0)) as here,
        worker(here.address, "a", state_bytes=60, moves={"fails": "park"}) as a,
        worker(here.address, "b", state_bytes=60) as b,
    ):
        await turn(a)
        assert await turn(b)
        answer = await a.do("acquire")
        assert answer["error"] == "JobQuarantined"
        assert await turn(b)


async def test_state_that_outgrew_its_declaration_is_declared_anew_before_the_yield(tmp_path: Path) -> None:
    async with (
        site(tmp_path) as here,
        worker(here.address, "a", state_bytes=10, moves={"grows_to": 70}) as a,
        worker(here.address, "b", state_bytes=40) as b,
    ):
        await turn(a)
        assert here.scheduler.jobs["a"].state_bytes == {"g": 70}
        await turn(b)
        assert [kind for kind, _, _ in await a.do("orders")] == ["park"]


async def test_ranks_of_one_place_move_together_and_their_sizes_add_up(tmp_path: Path) -> None:
    async with (
        site(tmp_path) as here,
        worker(here.address, "a", state_bytes=40) as one,
        worker(here.address, "a", state_bytes=30) as two,
        worker(here.address, "b", state_bytes=60) as b,
    ):
        assert here.scheduler.jobs["a"].state_bytes == {"g": 70}
        await turn(one)
        await turn(b)
        await turn(two)
        for rank in (one, two):
            assert [kind for kind, _, _ in await rank.do("orders")] == ["park", "restore"]
        assert await one.do("close") == "done"
        assert "a" in here.scheduler.jobs
        assert await two.do("close") == "done"
        await until(lambda: "a" not in here.scheduler.jobs, "a is done with its last worker")


async def test_a_rank_that_fails_has_the_others_put_back(tmp_path: Path) -> None:
    async with (
        site(tmp_path, Group("g", capacity_bytes=100, retries=0)) as here,
        worker(here.address, "a", state_bytes=30) as good,
        worker(here.address, "a", state_bytes=30, moves={"fails": "park"}) as bad,
        worker(here.address, "b", state_bytes=60) as b,
    ):
        await turn(good)
        await turn(b)
        orders = await good.do("orders")
        assert [kind for kind, _, _ in orders] == ["park", "restore", "discard"]
        assert orders[1][1] == -orders[0][1]
        assert [kind for kind, _, _ in await bad.do("orders")] == ["park", "discard"]


async def test_a_job_on_two_groups_has_a_worker_on_each(tmp_path: Path) -> None:
    groups = Group("g", capacity_bytes=100), Group("h", capacity_bytes=100)
    async with (
        site(tmp_path, *groups) as here,
        worker(here.address, "a", group="g", state_bytes=10, owner="o") as trainer,
    ):
        both = await trainer.do("acquire", groups=["g", "h"])
        async with worker(here.address, "a", group="h", state_bytes=20) as sampler:
            assert here.scheduler.jobs["a"].state_bytes == {"g": 10, "h": 20}
            assert here.scheduler.jobs["a"].owner == "o"
            await trainer.do("release", lease=both["lease"], groups=["h"])
            nested = await sampler.do("acquire", phase="generate")
            assert nested["tokens"].keys() == {"h"}
            assert here.holder("g") == "a"


async def test_without_a_backend_nothing_is_moved(tmp_path: Path) -> None:
    async with (
        site(tmp_path) as here,
        worker(here.address, "a", state_bytes=60, moves=None) as a,
        worker(here.address, "b", state_bytes=60, moves=None) as b,
    ):
        for process in (a, b, a):
            await turn(process)


async def test_a_worker_that_leaves_unfinished_gives_up_its_job_when_its_process_ends(tmp_path: Path) -> None:
    async with site(tmp_path) as here, worker(here.address, "a") as a:
        await a.do("acquire")
        await a.do("close", done=False)
        await until(lambda: here.holder() is None, "its lease is given back")
        assert "a" in here.scheduler.jobs
        assert await a.end() == 0
        await until(lambda: "a" not in here.scheduler.jobs, "job a is lost")


async def test_a_process_that_just_ends_says_nothing_on_stderr_and_does_not_hang(tmp_path: Path) -> None:
    async with site(tmp_path) as here, told("worker") as a:
        await a.do("connect", address=here.address, job="a", group="g")
        await a.do("acquire")
        assert await a.end() == 0
        await until(lambda: "a" not in here.scheduler.jobs, "job a is lost")


async def test_the_same_name_in_another_process_is_refused(tmp_path: Path) -> None:
    async with site(tmp_path) as here, worker(here.address, "a", client="me") as a, told("worker") as other:
        answer = await other.do("connect", address=here.address, job="a", group="g", client="me")
        assert answer["error"] == "Invalid"
        assert f"process {a.process.pid}, which lives" in answer["text"]
        assert await turn(a)
        a.process.kill()
        await a.process.wait()
        assert await other.do("connect", address=here.address, job="a", group="g", client="me") == "me"
        assert await turn(other)


async def test_a_worker_is_refused_with_the_scheduler_s_own_words(tmp_path: Path) -> None:
    async with site(tmp_path) as here, told("worker") as a:
        answer = await a.do("connect", address=here.address, job="a", group="nowhere", state_bytes=1)
        assert answer["error"] == "UnknownGroup"
        answer = await a.do("connect", address=here.address, job="x" * 300, group="g")
        assert answer["error"] == "Invalid"
        assert "300 bytes" in answer["text"]
        await a.do("connect", address=here.address, job="a", group="g", state_bytes=1)
        assert (await a.do("acquire", groups=["nowhere"]))["error"] == "UnknownGroup"
        assert (await a.do("acquire", ttl_s=-1.0))["error"] == "Invalid"
