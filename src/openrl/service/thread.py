"""The one thread that runs the worker. What it returns comes back on the event loop, which never waits for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")
_Job = tuple[Callable[[], Any], Callable[[Any], None]]


class WorkerThread:
    """Calls one job after the other, always on the same thread of the operating system."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._work, name="openrl-worker", daemon=True)
        self._thread.start()

    def put(self, call: Callable[[], T], then: Callable[[T | BaseException], None]) -> None:
        """Call on the thread; then, on the loop, hand on what it returned or raised."""
        self._jobs.put((call, then))

    async def call(self, call: Callable[[], T]) -> T:
        """The same, for who waits."""
        answer: asyncio.Future[T | BaseException] = self._loop.create_future()
        self.put(call, answer.set_result)
        found = await answer
        if isinstance(found, BaseException):
            raise found
        return found

    async def close(self) -> None:
        """Finish what was put, then end."""
        ended = asyncio.Event()
        self._jobs.put((lambda: None, lambda _: ended.set()))
        self._jobs.put(None)
        await ended.wait()
        self._thread.join()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            call, then = job
            answer: Any
            try:
                answer = call()
            except BaseException as error:
                answer = error
            if not self._hand_back(then, answer):
                return

    def _hand_back(self, then: Callable[[Any], None], answer: Any) -> bool:
        try:
            self._loop.call_soon_threadsafe(then, answer)
        except RuntimeError:  # the loop is closed: nobody is left to tell
            return False
        return True
