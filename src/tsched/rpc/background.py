"""Work that nobody waits for, kept until it is done."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from tsched.errors import SchedulerClosed

_log = logging.getLogger("tsched")


class Background:
    """Tasks of an event loop; none of them fails unheard."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(_heard(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def close(self) -> None:
        """End what goes on."""
        for task in list(self._tasks):
            task.cancel()


async def _heard(work: Coroutine[Any, Any, None]) -> None:
    """A scheduler that has closed meanwhile is no error."""
    try:
        await work
    except SchedulerClosed:
        pass
    except Exception:
        _log.exception("worker channel")
