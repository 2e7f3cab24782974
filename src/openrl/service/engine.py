"""Drives the ledger: hands steps to the worker's thread, records what comes of them, wakes who waits for answers.

All of it happens on the event loop but the steps themselves. When a step ends, the queue moves on, and its result, the
note of the next step, and what clients have sent meanwhile are recorded in one transaction; only then are clients woken
and is the next step begun. Nothing is polled.
"""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import structlog

from openrl.queue import Failed, Lease
from openrl.service.inbox import Inbox
from openrl.service.ledger import Ledger
from openrl.service.outcome import Outcome
from openrl.service.recorder import Recorder
from openrl.service.tasks import Task, Tasks
from openrl.service.thread import WorkerThread
from openrl.store import MadeDurable, Request, Sampler, Write

_log = structlog.get_logger(__name__)
_WORKER = "in_process"
T = TypeVar("T")


class Engine:
    """One worker; what it is doing is `step`. `counts` has the answers by category, and the worker's deaths."""

    def __init__(
        self, ledger: Ledger, recorder: Recorder, tasks: Tasks, inbox: Inbox, clock: Callable[[], int]
    ) -> None:
        self.step: Lease | None = None
        self.counts: Counter[str] = Counter()
        self._ledger = ledger
        self._recorder = recorder
        self._tasks = tasks
        self._inbox = inbox
        self._clock = clock
        self._thread: WorkerThread | None = None
        self._closing = False
        self._idle = asyncio.Event()

    async def start(self) -> None:
        """Take up what was left, and go on."""
        self._thread = WorkerThread()
        self._record(self._ledger.restore(self._clock()))
        self.kick()

    async def call(self, call: Callable[[], T]) -> T:
        """Call something else on the worker's thread, between two steps."""
        assert self._thread is not None
        return await self._thread.call(call)

    async def close(self) -> None:
        """Let the step that runs come to its end; begin no other."""
        self._closing = True
        if self.step is not None:
            await self._idle.wait()
        if self._thread is not None:
            await self._thread.close()

    def accepted(self, request: Request) -> None:
        self._record(self._ledger.accepted(request, self._clock()))
        self.kick()

    def sample_accepted(self, request: Request, sampler: Sampler) -> None:
        self._ledger.sample_accepted(request, sampler)
        self.kick()

    def cancelled(self, request_id: str, failed: Failed) -> bool:
        """Whether it still waited."""
        writes = self._ledger.cancelled(request_id, failed, self._clock())
        self._record(writes)
        self.kick()
        return bool(writes)

    def released(self, model_id: str) -> None:
        self._ledger.queue.released(model_id)
        self.kick()

    def kick(self) -> None:
        """Begin the next step, if there is one and the worker is free."""
        if self.step is not None or self._closing or self._thread is None:
            return
        self.step, writes = self._ledger.lease(_WORKER)
        if self.step is not None:
            self._recorder.must(writes, partial(self._begin, self.step))

    def _begin(self, lease: Lease) -> None:
        assert self._thread is not None
        task = self._tasks.task(lease, self._clock())
        self._thread.put(task.call, partial(self._ended, lease, task))

    def _ended(self, lease: Lease, task: Task, found: list[Outcome] | BaseException) -> None:
        now_us = self._clock()
        self.step = None
        if isinstance(found, BaseException):
            _log.error("worker_died", step=str(lease.step), error=str(found))
            self.counts["worker_deaths"] += 1
            writes = self._ledger.worker_died(_WORKER, now_us)
        else:
            writes = self._ledger.finished(lease, found, now_us, task.folder)
        then = partial(self._tidy, task) if any(isinstance(write, MadeDurable) for write in writes) else None
        self._move_on(writes, then)

    def _move_on(self, writes: list[Write], then: Callable[[], None] | None) -> None:
        """Record what happened and the next step together."""
        answers = self._ledger.take_answers()
        lease, begun = (None, []) if self._closing else self._ledger.lease(_WORKER)
        self.step = lease

        def after() -> None:
            self._deliver(answers)
            if then is not None:
                then()
            if lease is not None:
                self._begin(lease)
            elif self._closing:
                self._idle.set()

        self._recorder.must(writes + begun, after)

    def _record(self, writes: list[Write]) -> None:
        answers = self._ledger.take_answers()
        if writes:
            self._recorder.must(writes, partial(self._deliver, answers))

    def _deliver(self, answers: dict[str, Outcome]) -> None:
        for request_id, outcome in answers.items():
            self._tasks.held.drop(request_id)
            self.counts[outcome.failed.category if outcome.failed else "done"] += 1
            _log.debug("request_answered", request_id=request_id, failed=outcome.failed, cost_us=outcome.cost_us)
            self._inbox.answered(request_id, outcome.answer())

    def _tidy(self, task: Task) -> None:
        """The state on disk that was replaced goes; the worker's thread need not wait for that."""
        if task.replaces:
            asyncio.get_running_loop().run_in_executor(None, partial(shutil.rmtree, task.replaces, ignore_errors=True))
