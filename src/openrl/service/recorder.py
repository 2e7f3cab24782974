"""Group commit: what many callers want recorded goes into the store in one transaction, in order.

What a client asks to record (`put`) may fail, and its sender is told. What has happened (`must`) may not be dropped: if
the store cannot take it, it is tried again until it can, and all that follows from it waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import structlog

from openrl.errors import StoreError
from openrl.store import Store, Write

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Entry:
    writes: Sequence[Write]
    then: Callable[[], None]
    asked: asyncio.Future[None] | None = None


class Recorder:
    """`stalled` says why the store takes nothing at present, or is empty."""

    def __init__(self, store: Store, retry_s: float) -> None:
        self.stalled = ""
        self._store = store
        self._retry_s = retry_s
        self._entries: list[_Entry] = []
        self._flushing = False
        self._timer: asyncio.Handle | None = None

    async def put(self, writes: Sequence[Write], then: Callable[[], None] = lambda: None) -> None:
        """Record with others of this moment; `then` is called right after, before anything else can happen."""
        asked = asyncio.get_running_loop().create_future()
        self._entries.append(_Entry(writes, then, asked))
        if self._timer is None or self.stalled:
            self._schedule(0)
        await asyncio.shield(asked)

    def must(self, writes: Sequence[Write], then: Callable[[], None] = lambda: None) -> None:
        """Record now, and all that was put before."""
        self._entries.append(_Entry(writes, then))
        self.flush()

    def flush(self) -> None:
        """Record all there is; what follows from that may ask for more, and gets it."""
        if self._flushing:
            return
        self._cancel_timer()
        self._flushing = True
        try:
            while self._entries and self._commit():
                pass
        finally:
            self._flushing = False
        if self._entries:
            self._turn_away()
            self._schedule(self._retry_s)

    def _commit(self) -> bool:
        batch, self._entries = self._entries, []
        try:
            self._store.commit([write for entry in batch for write in entry.writes])
        except Exception as error:
            return self._commit_singly(batch) if len(batch) > 1 else self._refused(batch[0], error)
        for entry in batch:
            self._done(entry)
        return True

    def _commit_singly(self, batch: list[_Entry]) -> bool:
        """One of them cannot be taken: find out which."""
        for number, entry in enumerate(batch):
            try:
                self._store.commit(entry.writes)
            except Exception as error:  # such as a value that no column takes
                if not self._refused(entry, error):
                    self._entries = self._entries[:1] + batch[number + 1 :] + self._entries[1:]
                    return False
            else:
                self._done(entry)
        return True

    def _done(self, entry: _Entry) -> None:
        self.stalled = ""
        entry.then()
        if entry.asked is not None and not entry.asked.done():
            entry.asked.set_result(None)

    def _refused(self, entry: _Entry, error: Exception) -> bool:
        """Tell who asked; what must be recorded goes back to the front. False: the store takes nothing now."""
        if entry.asked is not None:
            if not entry.asked.done():
                entry.asked.set_exception(error)
            return True
        _log.error("store_stalled", error=str(error))
        self.stalled = str(error)
        self._entries.insert(0, entry)
        return False

    def _turn_away(self) -> None:
        """While the store takes nothing, nobody who asks is kept waiting."""
        for entry in self._entries:
            if entry.asked is not None and not entry.asked.done():
                entry.asked.set_exception(StoreError(self.stalled))
        self._entries = [entry for entry in self._entries if entry.asked is None]

    def _schedule(self, delay_s: float) -> None:
        self._cancel_timer()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_soon(self.flush) if delay_s == 0 else loop.call_later(delay_s, self.flush)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
