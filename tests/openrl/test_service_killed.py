"""The service in a process of its own, killed again and again in the middle of a training run.

The process speaks JSON lines over a Unix socket; the test is the client, which sends its requests out of order, and
again whenever it does not know whether they arrived, as the SDK does.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import structlog

from openrl.queue import Limits
from openrl.service import Done, Failure, Service, Settings
from openrl.store import open_store
from openrl.work import ForwardBackward, ForwardBackwardResult, ModelSpec, OptimResult, OptimStep
from tests.conftest import ROOT
from tests.openrl import scripted_worker as scripted

SPEC = ModelSpec("tiny")
SOCKET = "socket"
ME = "me"
MODEL = "{session}:train:0"


# the service's side


async def serve(folder: Path) -> None:
    """Answer lines until killed."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    worker = scripted.ScriptedWorker(delay_s=0.002)
    settings = Settings(queue=Limits(replay_units=7, restarts=10_000))
    service = Service(open_store(folder / "store"), worker, scripted.decode, folder, settings)
    await service.start()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(json.dumps(await _served(service, *json.loads(line))).encode() + b"\n")

    (folder / SOCKET).unlink(missing_ok=True)
    server = await asyncio.start_unix_server(talk, folder / SOCKET)
    print("ready", flush=True)
    await server.serve_forever()


async def _served(service: Service, call: str, *given: Any) -> Any:
    match call, given:
        case "begin", (key,):
            session = await service.sessions.create(ME, idempotency_key=key)
            accepted = await service.models.create(ME, session, 0, SPEC)
            return [session, accepted.request_id]
        case "submit", (model, seq):
            work = _work(seq)
            return (await service.requests.submit(ME, model, seq, "json", scripted.encode(work), work)).request_id
        case "save", (model, seq):
            return (await service.requests.save_state(ME, model, seq, f"n{seq}")).request_id
        case "retrieve", (request_id,):
            return _shown(await service.requests.retrieve(ME, request_id, 5.0))
    raise ValueError(call)


def _shown(answer: Any) -> Any:
    if isinstance(answer, Done):
        value = answer.value
        return list(value.metrics) if isinstance(value, ForwardBackwardResult | OptimResult) else ["ok"]
    return [answer.error] if isinstance(answer, Failure) else None


def _work(seq: int) -> ForwardBackward | OptimStep:
    if seq % 3 == 0:
        return OptimStep(float(seq))
    return ForwardBackward([], "bad" if seq % 10 == 5 else f"loss{seq}", {}, seq % 7 == 2)


# the client's side


class Host:
    """The process, brought up again whenever it was killed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.up = asyncio.Event()
        self.process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        code = f"import asyncio, pathlib, {__name__} as m; asyncio.run(m.serve(pathlib.Path({str(self._folder)!r})))"
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, cwd=ROOT, stdout=asyncio.subprocess.PIPE
        )
        assert self.process.stdout is not None
        assert await self.process.stdout.readline() == b"ready\n"
        self.up.set()

    async def kill(self) -> None:
        assert self.process is not None
        self.up.clear()
        self.process.send_signal(signal.SIGKILL)
        await self.process.communicate()

    async def ask(self, *call: Any) -> Any:
        """Ask until there is an answer."""
        while True:
            await self.up.wait()
            with suppress(OSError, ValueError):
                return await self._ask(call)

    async def _ask(self, call: tuple[Any, ...]) -> Any:
        reader, writer = await asyncio.open_unix_connection(self._folder / SOCKET)
        try:
            writer.write(json.dumps(call).encode() + b"\n")
            return json.loads(await reader.readline())
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def answer(self, request_id: str) -> Any:
        while True:
            if (answer := await self.ask("retrieve", request_id)) is not None:
                return answer


@asynccontextmanager
async def hosted(folder: Path) -> AsyncIterator[Host]:
    host = Host(folder)
    await host.start()
    try:
        yield host
    finally:
        await host.kill()


async def train(host: Host, enough: asyncio.Event, rng: random.Random) -> dict[int, Any]:
    """Send requests a few at a time, in any order, until it is enough; the answers by number."""
    session, _ = await host.ask("begin", "key")
    model = MODEL.format(session=session)
    answers: dict[int, Any] = {}
    ids: dict[int, str] = {}
    while not enough.is_set():
        seqs = list(range(len(ids) + 1, len(ids) + 7))
        rng.shuffle(seqs)
        for seq in seqs:
            ids[seq] = await host.ask("save" if seq % 11 == 0 else "submit", model, seq)
        for seq in seqs:
            answers[seq] = await host.answer(ids[seq])
    for seq, request_id in ids.items():
        assert await host.answer(request_id) == answers[seq]
    return answers


def undisturbed(units: int) -> dict[int, Any]:
    """What a service that nobody kills answers."""
    weights, answers = scripted.start(SPEC), {}
    for seq in range(1, units + 1):
        work = _work(seq)
        if seq % 11 == 0:
            answers[seq] = ["ok"]
        elif isinstance(work, ForwardBackward) and work.loss == "bad":
            answers[seq] = ["loss 'bad' is not known"]
        else:
            weights = scripted.after(weights, work)
            answers[seq] = [f"{weights}:sum"]
    return answers


async def kill_and_train(folder: Path, kills: int, seed: int) -> None:
    rng, enough = random.Random(seed), asyncio.Event()
    async with hosted(folder) as host:
        training = asyncio.create_task(train(host, enough, random.Random(seed + 1)))
        for _ in range(kills):
            await asyncio.sleep(rng.uniform(0, 0.15))
            await host.kill()
            await host.start()
        enough.set()
        async with asyncio.timeout(300):
            answers = await training
    assert answers == undisturbed(len(answers))


def test_a_service_that_is_killed_again_and_again_answers_as_if_it_never_was(tmp_path: Path) -> None:
    asyncio.run(kill_and_train(tmp_path, 5, seed=1))


@pytest.mark.nightly
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(2))
def test_the_same_holds_for_fifty_kills(tmp_path: Path, seed: int) -> None:
    asyncio.run(kill_and_train(tmp_path, 50, seed))
