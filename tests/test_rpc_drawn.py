"""Workers that lie, repeat themselves and break off at any message: the others get their turns all the same.

Every drawn word is spoken by hand over a real socket, in one process with the hub.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import grpc
from anyio.abc import TaskGroup, TaskStatus
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.rpc_raw import Raw, acquire, hello, raw, release
from tests.rpc_site import Site, site, until
from tsched import Group
from tsched.rpc.processes import Process, process_of_pid
from tsched.rpc.v1 import worker_pb2 as pb
from tsched.rpc.wire import process_message

CLIENTS = 3
GROUPS = "g", "h"

small = st.integers(0, 4)
numbers = small | st.sampled_from([2**31, 2**63 - 1, 2**63, 2**64 - 1])
names = st.sampled_from([*GROUPS, "", "nowhere", "x" * 300, "a\nb"])
groups = st.lists(names, max_size=3) | st.sampled_from([["g"], ["h"], ["g", "h"], ["h", "g"]])
sizes = st.sampled_from([None, -1, 0, 1, 2**62])
seconds = st.none() | st.sampled_from([-1.0, 0.0, 1e-9, 0.01, 5.0, 1e15, float("inf"), float("nan")])
outcomes = st.sampled_from(
    [
        {},
        {"done": pb.Done()},
        {"failure": pb.Failure(code="stale_token", text="x" * 9000)},
        {"failure": pb.Failure()},
        {"presence": pb.Presence(resident_bytes=-5)},
        {"presence": pb.Presence(alive=True)},
        {"sizes": pb.Sizes(save_bytes=-1)},
    ]
)

words = st.one_of(
    st.builds(
        lambda call, request, wanted, within, ttl, estimate: acquire(
            call, request, *wanted, within=within, ttl_s=ttl, estimate_s=estimate
        ),
        small,
        numbers,
        groups,
        st.none() | numbers,
        seconds,
        seconds,
    ),
    st.builds(lambda call: acquire(call, call, "g"), small),
    st.builds(lambda call: pb.FromWorker(cancel=pb.Cancel(call=call)), numbers),
    st.builds(
        lambda call, lease, wanted, size: release(call, lease, groups=wanted, state_bytes=size),
        small,
        numbers,
        groups,
        sizes,
    ),
    st.builds(lambda call, lease: pb.FromWorker(renew=pb.Renew(call=call, lease=lease)), small, numbers),
    st.builds(lambda number, outcome: pb.FromWorker(answer=pb.Answer(number=number, **outcome)), numbers, outcomes),
    st.builds(lambda call, done: pb.FromWorker(goodbye=pb.Goodbye(call=call, done=done)), small, st.booleans()),
    st.just(hello()),
    st.just(pb.FromWorker()),
    st.binary(max_size=16),
)
hellos = st.builds(
    lambda **drawn: drawn,
    held=st.lists(numbers, max_size=3),
    calls=st.lists(small, max_size=3),
    state_bytes=st.just(1),
    capabilities=st.builds(pb.Capabilities, moves=st.booleans()),
)


@dataclass
class Open:
    """A client opens a stream, where it has one already another one."""

    client: int
    job: str
    said: dict[str, Any]


@dataclass
class Cut:
    """Its stream is cut."""

    client: int


@dataclass
class Kill:
    """Its process is killed, and its stream ends with it."""

    client: int


@dataclass
class Say:
    """It says something, and may hear what there is to hear, answering every order as `answers` says."""

    client: int
    words: list[pb.FromWorker | bytes]
    answers: dict[str, Any] = field(default_factory=dict)


clients = st.integers(0, CLIENTS - 1)
steps = st.lists(
    st.builds(Open, clients, st.sampled_from("ab"), hellos)
    | st.builds(Cut, clients)
    | st.builds(Kill, clients)
    | st.builds(Say, clients, st.lists(words, min_size=1, max_size=4), outcomes),
    max_size=12,
)


class Attack:
    """The drawn clients' streams, each with a task that hears what comes and answers orders as it was last told to."""

    def __init__(self, here: Site, tasks: TaskGroup) -> None:
        self._here, self._tasks = here, tasks
        self._streams: dict[int, Raw] = {}
        self._all: list[Raw] = []
        self._answers: dict[int, dict[str, Any]] = {}
        self._children: dict[int, subprocess.Popen[bytes]] = {}

    async def take(self, step: Open | Cut | Kill | Say) -> None:
        with suppress(grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError):
            match step:
                case Open(client, job, said):
                    await self._tasks.start(self._open, client)
                    process = process_message(self._process(client))
                    await self._streams[client].say(hello(client=f"c{client}", job=job, process=process, **said))
                case Cut(client) if client in self._streams:
                    self._streams.pop(client).call.cancel()
                case Kill(client):
                    self._kill(client)
                    if client in self._streams:
                        self._streams.pop(client).call.cancel()
                case Say(client, said) if client in self._streams:
                    self._answers[client] = step.answers
                    await self._streams[client].say(*said)
        await anyio.sleep(0.001)

    async def _open(self, client: int, *, task_status: TaskStatus[None]) -> None:
        """What it had open before is left for the hub to end."""
        async with raw(self._here.address) as stream:
            self._streams[client] = stream
            self._all.append(stream)
            task_status.started()
            with suppress(grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError, asyncio.CancelledError):
                await self._listen(client, stream)

    async def _listen(self, client: int, stream: Raw) -> None:
        while (heard := await stream.call.read()) is not grpc.aio.EOF:  # type: ignore[attr-defined]
            message = pb.ToWorker.FromString(heard)
            if message.HasField("order"):
                answer = pb.Answer(number=message.order.number, **self._answers.get(client, {}))
                await stream.say(pb.FromWorker(answer=answer))

    def _process(self, client: int) -> Process:
        """Something that lives, and can be killed, in the worker's stead."""
        if client not in self._children:
            self._children[client] = subprocess.Popen(["sleep", "600"])
        return process_of_pid(self._children[client].pid)

    def _kill(self, client: int) -> None:
        child = self._children.pop(client, None)
        if child is not None:
            child.kill()
            child.wait()

    def end(self) -> None:
        for client in list(self._children):
            self._kill(client)
        for stream in self._all:
            stream.call.cancel()


@asynccontextmanager
async def honest(here: Site) -> AsyncIterator[Raw]:
    async with raw(here.address) as stream:
        await stream.greet(client="honest", job="honest", state_bytes=1)
        yield stream


async def has_a_turn(stream: Raw) -> None:
    """On both groups, with all of the protocol's answers."""
    await stream.say(acquire(1, 1, *GROUPS))
    grant = (await stream.hear()).reply.grant
    assert grant.tokens.keys() == set(GROUPS)
    await stream.say(release(2, grant.lease, state_bytes=1))
    assert (await stream.hear()).reply.HasField("done")


def holders_are_known(here: Site) -> None:
    """Nobody holds a turn whom the hub does not know."""
    known = {worker.client for worker in here.hub.workers}
    for group in here.scheduler.status().groups.values():
        assert group.holder is None or group.holder.client in known


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(steps)
@example([Open(0, "a", {}), Say(0, [acquire(1)]), Open(0, "a", {"held": [1]}), Say(0, [acquire(1), release(2, 1)])])
@example([Open(0, "a", {}), Open(1, "a", {}), Say(0, [acquire(1)]), Say(1, [release(1, 1), acquire(2)]), Cut(0)])
def test_no_words_of_others_keep_a_worker_from_its_turn(tmp_path: Path, drawn: list[Open | Cut | Kill | Say]) -> None:
    async def attack() -> None:
        room = [Group(name, capacity_bytes=100, move_timeout_us=500_000, retries=0) for name in GROUPS]
        async with (
            site(tmp_path, *room, grace_s=0.1) as here,
            honest(here) as stream,
            anyio.create_task_group() as tasks,
        ):
            attackers = Attack(here, tasks)
            try:
                for step in drawn:
                    await attackers.take(step)
                    holders_are_known(here)
            finally:
                attackers.end()
            await has_a_turn(stream)
            await until(lambda: here.scheduler.jobs.keys() == {"honest"}, "the others' jobs are lost")

    anyio.run(attack)
