"""The service without its network side: all that a route may ask for, on one event loop, over one store and worker."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import structlog
from msgspec import Struct

from openrl.errors import OpenRLError
from openrl.service.checkpoints import Checkpoints
from openrl.service.core import Clock, Core
from openrl.service.models import Models
from openrl.service.requests import Requests
from openrl.service.samplers import Samplers
from openrl.service.sessions import Sessions
from openrl.service.settings import Settings
from openrl.service.sweep import Sweep
from openrl.service.tasks import Decode
from openrl.store import Store
from openrl.worker import Base, Worker

_log = structlog.get_logger(__name__)


class Stats(Struct, frozen=True):
    """Counts of this moment, and `counts` since the start. `stalled` says why the store takes nothing, or is empty."""

    waiting_units: int
    waiting_samples: int
    models_in_memory: int
    busy: bool
    stalled: str
    counts: dict[str, int]


def now_us() -> int:
    return time.time_ns() // 1000


class Service:
    """Start it on the loop that will use it. Every method of its parts checks that the ids it is given are the owner's.

    Raises:
        Unknown: an id that was never given out, or is somebody else's.
        RequestError: what is asked for cannot be; the text says why.
        Overloaded: too much waits; the same call may succeed later.
        StoreError: the store cannot be written just now.
    """

    def __init__(
        self,
        store: Store,
        worker: Worker,
        decode: Decode,
        folder: Path,
        settings: Settings | None = None,
        clock: Clock = now_us,
    ) -> None:
        self._core = Core(store, worker, decode, folder.absolute(), settings or Settings(), clock)
        self._worker = worker
        self._sweeping: asyncio.Task[None] | None = None
        self._sweep = Sweep(self._core)
        self.checkpoints = Checkpoints(self._core)
        self.sessions = Sessions(self._core)
        self.models = Models(self._core, self.checkpoints)
        self.requests = Requests(self._core, self.checkpoints)
        self.samplers = Samplers(self._core, self.checkpoints)

    async def start(self) -> None:
        """Take up what an earlier process left, and go on with it."""
        await self._core.start()
        self._sweeping = asyncio.create_task(self._sweep_for_ever())

    async def close(self) -> None:
        """Finish the step that runs; what waits is taken up by the next start. The store is the caller's to close."""
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.gather(self._sweeping, return_exceptions=True)
        try:
            async with asyncio.timeout(self._core.settings.close_s):
                await self._core.engine.close()
        except TimeoutError:
            _log.warning("closed_in_the_middle", step=str(self._core.engine.step))
        finally:
            self._core.lock.release()

    def bases(self) -> tuple[Base, ...]:
        """The base models that can be trained and sampled."""
        return self._core.bases

    def stats(self) -> Stats:
        queue = self._core.ledger.queue
        return Stats(
            queue.waiting_units(),
            queue.waiting_samples(),
            sum(line.position is not None for line in queue.lines()),
            self._core.engine.step is not None,
            self._core.recorder.stalled,
            dict(self._core.engine.counts),
        )

    async def sweep(self) -> None:
        """Let go of what is past its time; happens by itself now and then."""
        await self._sweep.once()

    async def _sweep_for_ever(self) -> None:
        settings = self._core.settings
        while True:
            try:
                await self._sweep.once()
            except OpenRLError as error:  # the next round may succeed
                _log.error("sweep_failed", error=str(error))
            await asyncio.sleep(min(settings.sweep_s, settings.idle_s, settings.ended_s))
