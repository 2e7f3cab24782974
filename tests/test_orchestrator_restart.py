"""An orchestrator that ends, or is killed, and is started again from its log: the same holder, the same line."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import grpc
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.orchestrator_site import Llmd, configured, line, orchestrator, refused, until, until_line
from tsched.orchestrator.config import Config
from tsched.orchestrator.server import Running

pytestmark = pytest.mark.anyio
Code = grpc.StatusCode


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def as_killed(folder: Path, to: Path) -> Config:
    """What a server finds that starts after the one in `folder` was killed at this moment: its log as it is on disk."""
    to.mkdir()
    for file in folder.glob("log.db*"):
        shutil.copy(file, to / file.name)
    return configured(to, "g", "h")


async def test_after_an_orderly_end_holder_and_line_are_as_they_were(tmp_path: Path) -> None:
    config = configured(tmp_path)
    async with orchestrator(config) as (running, client):
        await client.acquire("a")
        calls = [client.acquire("b")]
        await until_line(running, "a", "b")
        calls.append(client.acquire("c"))
        await until_line(running, "a", "b", "c")
        held = running.scheduler.holder("g")
    for call in calls:
        assert (await refused(call))[0] is Code.UNAVAILABLE
    async with orchestrator(config) as (running, client):
        assert line(running) == ("a", ["b", "c"])
        found = running.scheduler.holder("g")
        assert held is not None
        assert found is not None
        assert (found.lease, found.token, found.request) == (held.lease, held.token, held.request)
        third, second = client.acquire("c"), client.acquire("b")
        await client.groups()
        assert line(running) == ("a", ["b", "c"])
        await client.give_up("a")
        assert (await second).success
        await client.give_up("b")
        assert (await third).success


async def test_a_holder_from_before_keeps_its_turn_for_as_long_as_it_likes(tmp_path: Path) -> None:
    config = configured(tmp_path, server={"reattach_s": 0.2})
    async with orchestrator(config) as (_, client):
        await client.acquire("a")
    async with orchestrator(config) as (running, client):
        await until(lambda: (found := running.scheduler.holder("g")) is not None and found.attached, "a is taken up")
        waiting = client.acquire("b")
        assert (await refused(client.acquire("c", timeout=1)))[0] is Code.DEADLINE_EXCEEDED  # five times reattach_s
        await until_line(running, "a", "b")
        assert (await client.acquire("a")).success
        assert (await client.give_up("a")).success
        assert (await waiting).success


async def test_a_waiter_that_does_not_come_back_blocks_nobody_for_long(tmp_path: Path) -> None:
    config = configured(tmp_path, server={"reattach_s": 0.2})
    async with orchestrator(config) as (running, client):
        await client.acquire("a")
        waiting = client.acquire("b")
        await until_line(running, "a", "b")
    await refused(waiting)
    async with orchestrator(config) as (running, client):
        other = client.acquire("c")
        await until_line(running, "a", "b", "c")
        await client.give_up("a")
        assert (await other).success


async def test_a_waiter_from_before_that_yields_leaves_the_line(tmp_path: Path) -> None:
    config = configured(tmp_path)
    async with orchestrator(config) as (running, client):
        await client.acquire("a")
        waiting = client.acquire("b")
        await until_line(running, "a", "b")
    await refused(waiting)
    async with orchestrator(config) as (running, client):
        await client.give_up("b")
        assert line(running) == ("a", [])
        again = client.acquire("b")
        await until_line(running, "a", "b")
        await client.give_up("a")
        assert (await again).success


async def test_tokens_only_grow_over_restarts(tmp_path: Path) -> None:
    config = configured(tmp_path)
    tokens = []
    for _ in range(3):
        async with orchestrator(config) as (running, client):
            for job in "ab":
                await client.acquire(job)
                found = running.scheduler.holder("g")
                assert found is not None
                tokens.append(found.token)
                await client.give_up(job)
    assert tokens == sorted(set(tokens))


# --------------------------------------------------------------------- drawn

JOBS = {"g": "abc", "h": "de"}
STEPS = st.one_of(
    st.tuples(st.sampled_from(["acquire", "acquire", "yield", "cancel"]), st.sampled_from("abcde")),
    st.tuples(st.sampled_from(["end", "kill"]), st.just("")),
)


NO_SHRINKING = [Phase.explicit, Phase.reuse, Phase.generate]  # what fails waits long for what does not come


class Model:
    """What must be: one holder a group, and a line in order of arrival."""

    def __init__(self) -> None:
        self.holder: dict[str, str | None] = dict.fromkeys(JOBS)
        self.line: dict[str, list[str]] = {group: [] for group in JOBS}

    def acquire(self, job: str, group: str) -> None:
        if self.holder[group] is None:
            self.holder[group] = job
        elif self.holder[group] != job and job not in self.line[group]:
            self.line[group].append(job)

    def leave(self, job: str, group: str) -> None:
        if self.holder[group] == job:
            self.holder[group] = self.line[group].pop(0) if self.line[group] else None
        elif job in self.line[group]:
            self.line[group].remove(job)


class Run:
    """The server, its model, and the calls that wait."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.model, self.lives = folder, Model(), 0
        self.calls: dict[tuple[str, str], Any] = {}
        self._stack = AsyncExitStack()
        self.running: Running
        self.client: Llmd

    async def start(self, config: Config) -> None:
        self.running, self.client = await self._stack.enter_async_context(orchestrator(config))

    async def step(self, name: str, job: str) -> None:
        group = next((group for group, jobs in JOBS.items() if job in jobs), "")
        match name:
            case "acquire":
                waits = job in self.model.line[group]
                self.model.acquire(job, group)
                if not waits:
                    self.calls[job, group] = self.client.acquire(job, group)
            case "yield":
                await self._yield(job, group)
            case "cancel" if job in self.model.line[group]:
                self.calls.pop((job, group)).cancel()
                self.model.leave(job, group)
            case "end" | "kill":
                await self._again(name)
        await self.check()

    async def _yield(self, job: str, group: str) -> None:
        holder = self.model.holder[group]
        if holder in (None, job) or job in self.model.line[group]:
            await self.client.give_up(job, group)
            self.model.leave(job, group)
            self.calls.pop((job, group), None)
        else:
            assert (await refused(self.client.give_up(job, group)))[0] is Code.PERMISSION_DENIED

    async def _again(self, how: str) -> None:
        """End or kill the server; then everybody who waited asks again, the last first."""
        config = self.running.config
        if how == "kill":
            self.lives += 1
            config = as_killed(config.server.log.parent, self.folder / str(self.lives))
        await self._stack.aclose()
        self._stack = AsyncExitStack()
        await self.start(config)
        for group, waiting in self.model.line.items():
            for job in reversed(waiting):
                self.calls[job, group] = self.client.acquire(job, group)

    async def check(self) -> None:
        """The server is as the model says, and so are its answers."""
        for group in JOBS:
            holder = self.model.holder[group]
            await until_line(self.running, holder, *self.model.line[group], group=group)
            call = None if holder is None else self.calls.pop((holder, group), None)
            if call is not None:
                with anyio.fail_after(30):
                    assert (await call).success
        assert not any(call.done() for call in self.calls.values())

    async def stop(self) -> None:
        for call in self.calls.values():
            call.cancel()
        await self._stack.aclose()


@pytest.mark.slow
@settings(max_examples=30, deadline=None, phases=NO_SHRINKING)
@given(steps=st.lists(STEPS, max_size=25))
def test_one_holder_a_group_and_a_line_in_order_whatever_happens(steps: list[tuple[str, str]]) -> None:
    async def play() -> None:
        with TemporaryDirectory() as folder:
            run = Run(Path(folder))
            await run.start(configured(Path(folder), *JOBS))
            try:
                for name, job in steps:
                    await run.step(name, job)
            finally:
                await run.stop()

    asyncio.run(play())
