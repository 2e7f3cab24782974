"""Showing every decision to whoever counts, logs or traces them, after it was taken and beside whatever goes on.

A reader never holds up the scheduler. Where so much happens that readers fall behind, they are told that something is
missing, and go on from there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from types import TracebackType
from typing import Protocol, Self

from tsched.errors import SchedulerClosed
from tsched.journal import Record
from tsched.observers import Overrun
from tsched.scheduler import Scheduler

BUFFER = 4096
# So that a burst of records does not keep calls waiting.
AT_ONCE = 32

_log = logging.getLogger("tsched")


class Reader(Protocol):
    """Reads decisions."""

    def take(self, record: Record) -> None:
        """The next one."""
        ...

    def missed(self) -> None:
        """Some are missing before the next one."""
        ...


class Following:
    """Shows a scheduler's decisions to readers until it is left; an async context manager. Needs asyncio."""

    def __init__(self, scheduler: Scheduler, readers: Sequence[Reader]) -> None:
        self._scheduler, self._readers = scheduler, readers
        self._task: asyncio.Task[None] | None = None
        self.failure: Exception | None = None
        self.over = asyncio.Event()

    async def __aenter__(self) -> Self:
        begun = asyncio.Event()
        self._task = asyncio.ensure_future(self._follow(begun))
        await begun.wait()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _follow(self, begun: asyncio.Event) -> None:
        """Ends with the scheduler; `failure` says what ended that, where it was not its time."""
        try:
            while await self._read(begun):
                self._tell_missed()
        except SchedulerClosed:
            pass
        except Exception as error:
            self.failure = error
        finally:
            begun.set()
            self.over.set()

    async def _read(self, begun: asyncio.Event) -> bool:
        """Read until the end; True where records were missed."""
        count = 0
        async with self._scheduler.subscribe(BUFFER) as records:
            begun.set()
            try:
                async for record in records:
                    self._show(record)
                    count += 1
                    if not count % AT_ONCE:
                        await asyncio.sleep(0)
            except Overrun:
                return True
        return False

    def _show(self, record: Record) -> None:
        for reader in self._readers:
            try:
                reader.take(record)
            except Exception:  # one reader's mistake is not the others' loss
                _log.exception("%s cannot read record %d", type(reader).__name__, record.seq)

    def _tell_missed(self) -> None:
        for reader in self._readers:
            reader.missed()
