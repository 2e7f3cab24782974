"""A client of the service in this process, and the service over a scripted worker and a clock that a test moves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from openrl.errors import StoreError
from openrl.service import Accepted, Done, Service, Settings
from openrl.store import SqliteStore, Write, open_store
from openrl.work import ForwardBackward, ModelSpec, OptimStep, SampleResult, Work
from tests.openrl import scripted_worker as scripted
from tests.openrl.scripted_worker import ScriptedWorker

ME = "me"
SPEC = ModelSpec("tiny", seed=7)


class Clock:
    def __init__(self) -> None:
        self.now_us = 1_700_000_000_000_000

    def __call__(self) -> int:
        return self.now_us


class Client:
    """What the SDK does, in short."""

    def __init__(self, service: Service, worker: ScriptedWorker) -> None:
        self.service = service
        self.worker = worker
        self.session = ""
        self.model = ""

    async def begin(self, spec: ModelSpec = SPEC) -> None:
        self.session = await self.service.sessions.create(ME)
        accepted = await self.service.models.create(ME, self.session, 0, spec)
        self.model = accepted.model_id
        await self.value(accepted)

    async def submit(self, seq: int, work: ForwardBackward | OptimStep) -> Accepted:
        return await self.service.requests.submit(ME, self.model, seq, "json", scripted.encode(work), work)

    async def answer(self, accepted: Accepted | str) -> Any:
        request_id = accepted if isinstance(accepted, str) else accepted.request_id
        return await self.service.requests.retrieve(ME, request_id, 20.0)

    async def value(self, accepted: Accepted | str) -> Any:
        answer = await self.answer(accepted)
        assert isinstance(answer, Done), answer
        return answer.value

    async def loses(self, seq: int, loss: str) -> Any:
        return await self.answer(await self.submit(seq, ForwardBackward([], loss)))

    def weights(self) -> str:
        return self.worker.models[self.model]


class FullDisk(SqliteStore):
    """A store that takes nothing while `full`; `commits` counts what it took."""

    full = False
    commits = 0

    def commit(self, writes: Sequence[Write]) -> None:
        if self.full:
            raise StoreError("disk full")
        super().commit(writes)
        self.commits += 1


@asynccontextmanager
async def serving(
    tmp_path: Path,
    worker: ScriptedWorker | None = None,
    settings: Settings | None = None,
    clock: Clock | None = None,
    store: SqliteStore | None = None,
) -> AsyncIterator[Client]:
    worker = worker or ScriptedWorker()
    store = store or open_store(tmp_path / "store.sqlite")
    service = Service(store, worker, scripted.decode, tmp_path, settings, clock or Clock())
    try:
        await service.start()
        yield Client(service, worker)
    finally:
        await service.close()
        store.close()


def run(main: Callable[[], Awaitable[None]]) -> None:
    async def whole() -> None:
        await main()

    asyncio.run(whole())


def expected(*works: Work, spec: ModelSpec = SPEC) -> str:
    weights = scripted.start(spec)
    for work in works:
        weights = scripted.after(weights, work)
    return weights


FB = [ForwardBackward([], f"loss{number}") for number in range(20)]
STEP = OptimStep(0.1)


async def sampling(client: Client, seq: int, number: int) -> str:
    accepted = await client.service.requests.save_sampler(ME, client.model, seq, None, sampling_session_seq_id=number)
    saved = await client.value(accepted)
    assert saved.sampling_session_id == f"{client.session}:sample:{number}"
    return str(saved.sampling_session_id)


async def sampled(client: Client, sampler: str, seq: int, prompt: tuple[int, ...] = (1, 2)) -> SampleResult:
    one = scripted.sample(prompt, 2, seed=5)
    accepted = await client.service.samplers.sample(ME, sampler, seq, "json", scripted.encode(one), one, seeded=True)
    assert len(accepted.sample_sequence_ids) == 2
    value = await client.value(accepted.request_id)
    assert isinstance(value, SampleResult)
    return value


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.to_thread(lambda: None)
