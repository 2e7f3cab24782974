"""Engines that lie, fail and die under the live scheduler: no turn is granted on a word, and the others go on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import anyio
import pytest

from tests.engine_server import SIZE, Bench, EngineServer, Reply
from tsched import Group, Job, Scheduler
from tsched.commands import Quarantine
from tsched.errors import AcquireRefused, JobQuarantined

pytestmark = pytest.mark.anyio

PATIENCE_S = 20


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def bench() -> Iterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def make(**settings: Any) -> Bench:
        made.append(Bench(SIZE, **settings))
        return made[-1]

    yield make
    for each in made:
        each.close()


Make = Callable[..., Bench]


class Pool:
    """One device that holds one engine at a time, and jobs that start their engine at their first turn."""

    def __init__(self, rig: Bench, move_timeout_s: float = 5.0, retries: int = 1) -> None:
        self.rig = rig
        timeout_us = round(move_timeout_s * 1_000_000)
        group = Group("g", capacity_bytes=SIZE, move_timeout_us=timeout_us, retries=retries, prefetch=False)
        self.scheduler = Scheduler([group], backend=rig.backend, drain_s=1)
        self.weights: dict[str, bytes] = {}
        self.turns: list[str] = []

    async def __aenter__(self) -> Pool:
        await self.scheduler.__aenter__()
        for name in "ab":
            await self.scheduler.add_job(Job(name, state_bytes={"g": SIZE}))
        return self

    async def __aexit__(self, *exc: Any) -> None:
        await self.scheduler.__aexit__(*exc)

    async def turn(self, job: str) -> EngineServer:
        """Sample, then take new weights; what is sampled from must be what the last turn left."""
        with anyio.fail_after(PATIENCE_S):
            async with self.scheduler.hold(job, "g"):
                if job not in self.rig.jobs:
                    self.rig.start(job)  # it raises where the device has no room
                engine = self.rig.jobs[job]
                assert engine.read() == self.weights.get(job, engine.read())
                self.weights[job] = engine.train()
                self.turns.append(job)
                return engine

    async def runs_in_the_meantime(self, job: str, meanwhile: Callable[[], Awaitable[None]]) -> None:
        """The job asks for a turn; what is in `meanwhile` comes before it is granted."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.turn, job)
            await meanwhile()
            assert job not in self.turns


@pytest.mark.parametrize("mode", ["offload", "discard"])
@pytest.mark.parametrize("dialect", ["vllm", "sglang"])
async def test_two_engines_take_turns_and_keep_their_weights(bench: Make, dialect: str, mode: str) -> None:
    async with Pool(bench(dialect=dialect, mode=mode)) as pool:
        for _ in range(4):
            for job in "ab":
                await pool.turn(job)
    assert pool.turns == ["a", "b"] * 4


async def test_the_next_job_waits_until_memory_that_was_said_to_be_free_is_free(bench: Make) -> None:
    async with Pool(bench()) as pool:
        engine = await pool.turn("a")
        engine.keeps_memory = True

        async def meanwhile() -> None:
            await anyio.to_thread.run_sync(engine.slept.wait, PATIENCE_S)
            await anyio.sleep(0.1)
            assert engine.held_bytes() == SIZE
            engine.keeps_memory = False
            engine.let_go()

        await pool.runs_in_the_meantime("b", meanwhile)
        await pool.turn("a")
    assert pool.turns == ["a", "b", "a"]


async def test_a_liar_is_quarantined_alone_and_the_next_job_goes_on_when_the_memory_is_free(bench: Make) -> None:
    rig = bench(end=lambda: None)
    async with Pool(rig, move_timeout_s=0.15) as pool:
        engine = await pool.turn("a")
        engine.keeps_memory = True

        async def meanwhile() -> None:
            """Its process was told to end, and takes its time."""
            async with pool.scheduler.subscribe() as records:
                async for record in records:
                    if any(isinstance(command, Quarantine) for command in record.commands):
                        break
            await anyio.sleep(0.2)
            assert engine.held_bytes() == SIZE
            engine.kill()

        await pool.runs_in_the_meantime("b", meanwhile)
        with pytest.raises(JobQuarantined):
            await pool.turn("a")
        await pool.turn("b")
    assert pool.turns == ["a", "b", "b"]


async def test_a_park_that_fails_is_tried_again_and_no_turn_is_handed_on_for_it(bench: Make) -> None:
    async with Pool(bench()) as pool:
        engine = await pool.turn("a")
        engine.answers["/sleep"] = Reply(500, b"busy", times=1)
        await pool.turn("b")
        await pool.turn("a")
    assert pool.turns == ["a", "b", "a"]


async def test_an_engine_that_never_sleeps_is_ended_and_the_others_go_on(bench: Make) -> None:
    async with Pool(bench()) as pool:
        engine = await pool.turn("a")
        engine.answers["/sleep"] = Reply(500, b"worker died")
        await pool.turn("b")
        assert not engine.alive
        with pytest.raises(JobQuarantined, match="failed 2 times"):
            await pool.turn("a")
        await pool.turn("b")
    assert pool.turns == ["a", "b", "b"]


async def test_a_job_whose_restore_fails_is_never_told_to_go_on(bench: Make) -> None:
    async with Pool(bench(mode="discard")) as pool:
        engine = await pool.turn("a")
        await pool.turn("b")
        engine.answers["/collective_rpc"] = Reply(500, b"no such file")
        with pytest.raises(JobQuarantined, match="failed 2 times"):
            await pool.turn("a")
        await pool.turn("b")
    assert pool.turns == ["a", "b", "b"]


async def test_a_restore_that_fails_once_is_tried_again_with_nothing_left_behind(bench: Make) -> None:
    async with Pool(bench(mode="discard", dialect="sglang")) as pool:
        engine = await pool.turn("a")
        await pool.turn("b")
        engine.answers["/update_weights_from_disk"] = Reply(400, b'{"success": false}', times=1)
        await pool.turn("a")
        await pool.turn("b")
    assert pool.turns == ["a", "b", "a", "b"]


async def test_an_engine_that_hangs_delays_the_others_no_longer_than_its_timeout(bench: Make) -> None:
    async with Pool(bench(timeout_s=100.0), move_timeout_s=0.3, retries=0) as pool:
        engine = await pool.turn("a")
        engine.answers["/sleep"] = Reply(hang=True)
        await pool.turn("b")
        assert not engine.alive
    assert pool.turns == ["a", "b"]


async def test_the_death_of_a_parked_engine_ends_its_job_alone(bench: Make) -> None:
    async with Pool(bench()) as pool:
        engine = await pool.turn("a")
        await pool.turn("b")
        engine.kill()
        with pytest.raises(AcquireRefused):
            await pool.turn("a")
        await pool.turn("b")
    assert pool.turns == ["a", "b", "b"]


async def test_a_dead_engine_need_not_be_parked_for_the_next_one_to_start(bench: Make) -> None:
    """Fault 14: evicting a job that has exited faults nobody."""
    async with Pool(bench()) as pool:
        engine = await pool.turn("a")
        engine.kill()
        await pool.turn("b")
        await pool.turn("b")
    assert pool.turns == ["a", "b", "b"]
