"""Watching the decision log as it is written.

An observer never holds up the scheduler: each has a buffer of its own, and one that lets it fill up is dropped, with an
error once it has read what was kept.
"""

from __future__ import annotations

from collections import deque
from types import TracebackType
from typing import Self

import anyio

from tsched.errors import TschedError
from tsched.journal import Record


class Overrun(TschedError, BufferError):
    """An observer did not read as fast as decisions were taken, and was dropped."""


class Subscription:
    """An async iterator of the records that were written since `subscribe` was called; close it when done."""

    def __init__(self, observers: Observers, buffer: int) -> None:
        self._observers = observers
        self._buffer = buffer
        self._records: deque[Record] = deque()
        self._arrived: anyio.Event | None = None
        self._over = False
        self._error: Exception | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Record:
        """The next record; raises `Overrun` after a gap, or what stopped the scheduler."""
        await anyio.lowlevel.checkpoint_if_cancelled()
        while not self._records:
            if self._error is not None:
                raise self._error
            if self._over:
                raise StopAsyncIteration
            if self._arrived is None:
                self._arrived = anyio.Event()
            await self._arrived.wait()
        return self._records.popleft()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Take no more records."""
        self._observers.drop(self)
        self.end(None)

    def put(self, record: Record) -> bool:
        """Keep the record for the reader; False where the buffer is full and the reader is dropped."""
        if len(self._records) >= self._buffer:
            self.end(
                Overrun(f"dropped at record {record.seq}: {self._buffer} records were not read; make `buffer` larger")
            )
            return False
        self._records.append(record)
        self._wake()
        return True

    def end(self, error: Exception | None) -> None:
        self._over = True
        self._error = self._error or error
        self._wake()

    def _wake(self) -> None:
        if self._arrived is not None:
            self._arrived.set()
            self._arrived = None


class Observers:
    """All who watch one scheduler."""

    def __init__(self) -> None:
        self._all: list[Subscription] = []

    def add(self, buffer: int) -> Subscription:
        subscription = Subscription(self, buffer)
        self._all.append(subscription)
        return subscription

    def drop(self, subscription: Subscription) -> None:
        if subscription in self._all:
            self._all.remove(subscription)

    def tell(self, record: Record) -> None:
        if self._all:
            self._all = [each for each in self._all if each.put(record)]

    def close(self, error: Exception | None = None) -> None:
        for each in self._all:
            each.end(error)
        self._all.clear()
