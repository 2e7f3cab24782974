"""Who counts, logs and traces what an orchestrator does, as its config asks for; made before what they look at."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import anyio.to_thread
import grpc

from tsched.group_commit import Batched
from tsched.model import SECOND_US
from tsched.orchestrator.commits import Timed
from tsched.orchestrator.config import Config
from tsched.orchestrator.following import Reader
from tsched.orchestrator.log import Decisions, Refusals
from tsched.orchestrator.statuses import Observe
from tsched.rpc.address import parse
from tsched.scheduler import Scheduler

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from tsched.orchestrator.server import Running
    from tsched.orchestrator.tracing import Spans


class Observing:
    """What is seen of one server. Without an HTTP port nothing is counted, and without a place for spans none are."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._registry: CollectorRegistry | None = None
        self._observers: list[Observe] = [Refusals()]
        self.spans: Spans | None = None
        if config.server.http:
            from prometheus_client import CollectorRegistry

            from tsched.orchestrator import http, metrics  # noqa: F401  what is missing is told now

            self._registry = CollectorRegistry()
            self._observers.append(metrics.Calls(self._registry))

    def observe(self, method: str, status: grpc.StatusCode, told: str) -> None:
        """A call has ended."""
        for observer in self._observers:
            observer(method, status, told)

    def timed(self, journal: Batched) -> Batched:
        """The journal, its commits counted."""
        if self._registry is None:
            return journal
        from tsched.orchestrator.metrics import Commits

        return Timed(journal, Commits(self._registry))

    def readers(self, scheduler: Scheduler) -> list[Reader]:
        """Who reads the scheduler's decisions."""
        found: list[Reader] = [Decisions()]
        if self._registry is not None:
            from tsched.orchestrator.metrics import Turns

            found.append(Turns(self._registry))
        if self._config.server.spans:
            from tsched.orchestrator.tracing import Spans, exporter_to

            self.spans = Spans(exporter_to(self._config.server.spans), round(scheduler.now_s() * SECOND_US))
            found.append(self.spans)
        return found

    async def serving(self, running: Running, stack: AsyncExitStack) -> Running:
        """The server, with its HTTP port."""
        if self._registry is None:
            return running
        from tsched.orchestrator.http import App, http
        from tsched.orchestrator.metrics import Now

        Now(running.scheduler, running.watch, self._registry)
        app = App(self._registry, running.unready)
        return replace(running, http=await stack.enter_async_context(http(parse(self._config.server.http), app)))


@asynccontextmanager
async def observing(config: Config) -> AsyncIterator[Observing]:
    """Until the body ends; then what is left of spans is sent. Raises `MissingExtra`."""
    seen = Observing(config)
    try:
        yield seen
    finally:
        if seen.spans is not None:
            await anyio.to_thread.run_sync(seen.spans.close)
