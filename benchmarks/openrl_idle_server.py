"""An openrl server whose worker does nothing, so that what is left of a step's time is HTTP, queue and store.

Run as `python -m benchmarks.openrl_idle_server FOLDER`. It says what `openrl serve` says when it starts.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from openrl import log
from openrl.access import Keys
from openrl.app import create_app
from openrl.cli.serve import announce, first_key
from openrl.cli.server import Server, address, listening
from openrl.config import Config
from openrl.errors import RequestError
from openrl.service import Service
from openrl.store import open_store
from openrl.wire.decode import decode
from openrl.work import (
    ForwardBackward,
    ForwardBackwardResult,
    ModelSpec,
    OptimResult,
    OptimStep,
    Result,
    Sample,
    SampleResult,
    Work,
)
from openrl.worker import Base


class IdleWorker:
    """Trains nothing, and answers in the shapes that a training loop expects."""

    def bases(self) -> Sequence[Base]:
        return [Base("bench", 2048, 4096)]

    def check(self, spec: ModelSpec) -> None:
        """Every model will do."""

    def create(self, model_id: str, spec: ModelSpec) -> None:
        """There is nothing to make."""

    def load(self, model_id: str, spec: ModelSpec, folder: str, optimizer: bool) -> None:
        """There is nothing to load."""

    def load_durable(self, model_id: str, spec: ModelSpec, folder: str) -> None:
        """There is nothing to load."""

    def save_durable(self, model_id: str, folder: str) -> None:
        Path(folder).mkdir()

    def drop(self, model_id: str) -> None:
        """There is nothing to free."""

    def run(self, model_id: str, work: Work) -> Result | None:
        match work:
            case ForwardBackward(data=data):
                return ForwardBackwardResult([np.zeros(len(one.tokens), np.float32) for one in data], {"loss:sum": 1.0})
            case OptimStep():
                return OptimResult({"grad_norm:mean": 1.0})
        raise RequestError("this server trains in name only")

    def sample(self, batch: Sequence[Sample]) -> Sequence[SampleResult | RequestError]:
        return [RequestError("this server trains in name only") for _ in batch]


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True)
    log.configure("info")
    config = Config(data=folder, port=0)
    store = open_store(folder / "store")
    keys = Keys(store)
    app = create_app(Service(store, IdleWorker(), decode, folder), keys, config)
    with listening(config.host, config.port) as taken:
        server = Server(app, lambda: announce(address(config.host, taken), first_key(keys)))
        with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
            runner.run(server.serve([taken]))


if __name__ == "__main__":
    main()
