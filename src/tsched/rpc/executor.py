"""An event loop in one background thread, where a worker's backend carries out the scheduler's orders."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import TypeVar

import anyio
from anyio.from_thread import BlockingPortal

T = TypeVar("T")


class Executor:
    """Runs coroutines; its thread is a daemon's, so that it keeps no process from ending."""

    def __init__(self, name: str) -> None:
        self._portal: BlockingPortal
        self._ready = threading.Event()
        self._thread = threading.Thread(target=anyio.run, args=(self._main,), name=name, daemon=True)
        self._thread.start()
        self._ready.wait()

    def start(self, work: Callable[..., Awaitable[T]], *args: object) -> Future[T]:
        return self._portal.start_task_soon(work, *args)

    def close(self, timeout_s: float) -> None:
        """Cancel what runs, and end; a move that blocks is left to its thread."""
        self._portal.start_task_soon(self._portal.stop, True)
        self._thread.join(timeout_s)

    async def _main(self) -> None:
        async with BlockingPortal() as self._portal:
            self._ready.set()
            await self._portal.sleep_until_stopped()
