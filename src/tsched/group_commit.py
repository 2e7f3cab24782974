"""A decision log that is written in a thread of its own: all that came while one commit lasted goes into the next.

`append` returns at once; `durable` waits until what was appended before is on disk, and nobody outside may see the
effects of a decision sooner. A disk that cannot be written just now (full, busy) is tried again until it can: meanwhile
`stalled` says why, everything waits, and nothing is lost. A log that somebody else writes, or that is no log any more,
fails for good.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

import anyio
from anyio.lowlevel import EventLoopToken, current_token

from tsched.errors import JournalError, JournalStalled
from tsched.journal.record import Header, Journal, Record, Recovered

RETRY_S = 0.25
CLOSE_S = 5.0


class Batched(Journal, Protocol):
    """A journal that takes many records in one transaction."""

    def append_all(self, records: list[Record]) -> None:
        """As `append` of each, but all or none. Raises `JournalStalled` where trying again may help."""
        ...


class Batch:
    """What one commit writes, and who waits for it."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.snapshots: list[tuple[int, dict[str, Any]]] = []
        self._waiters: dict[EventLoopToken, anyio.Event] = {}

    @property
    def items(self) -> int:
        return len(self.records) + len(self.snapshots)

    def event(self) -> anyio.Event:
        """Set in the caller's event loop when the batch is on disk, or never will be."""
        return self._waiters.setdefault(current_token(), anyio.Event())

    def wake(self) -> None:
        for token, event in self._waiters.items():
            with suppress(RuntimeError):  # that loop has ended, and with it who waited
                _soon(token)(event.set)


class GroupCommit:
    """Commits what a scheduler decides in groups; `journal` is this one's alone, and closed with it."""

    def __init__(self, journal: Batched) -> None:
        self._journal = journal
        self._change = threading.Condition()
        self._open = Batch()
        self._writing: Batch | None = None
        self._closing = False
        self._thread: threading.Thread | None = None
        self._failure: JournalError | None = None
        self.stalled = ""

    def begin(self, header: Header) -> None:
        self._journal.begin(header)

    def load(self) -> Recovered | None:
        """What is on disk; raises `JournalStalled` where that is not all."""
        if self._open.items or self._writing is not None:
            raise JournalStalled(f"records wait to be written: {self.stalled or 'wait until they are'}")
        return self._journal.load()

    def append(self, record: Record) -> None:
        """Keep the record, soon. Raises `JournalError` once the log has failed for good."""
        with self._change:
            self._check()
            self._open.records.append(record)
            self._begin_writing()

    def save_snapshot(self, seq: int, snapshot: dict[str, Any]) -> None:
        """After all that was appended before it; `snapshot` must not change any more."""
        with self._change:
            self._check()
            self._open.snapshots.append((seq, snapshot))
            self._begin_writing()

    async def durable(self) -> None:
        """Wait until all that was appended so far is on disk. Raises `JournalError` when it never will be."""
        with self._change:
            self._check()
            if self._open.items:
                event = self._open.event()
            elif self._writing is not None:
                event = self._writing.event()
            else:
                return
        await event.wait()
        with self._change:
            self._check()

    def close(self) -> None:
        """Write what is left, for at most a few seconds where the disk does not take it, and end."""
        with self._change:
            self._closing = True
            self._change.notify()
        if self._thread is not None:
            self._thread.join(CLOSE_S)
        if self._thread is None or not self._thread.is_alive():
            self._journal.close()

    def _check(self) -> None:
        if self._failure is not None:
            raise type(self._failure)(*self._failure.args)

    def _begin_writing(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._write_all, name="tsched log", daemon=True)
            self._thread.start()
        self._change.notify()

    # ---------------------------------------------------------- in the thread

    def _write_all(self) -> None:
        while (batch := self._next()) is not None:
            try:
                self._until_written(batch)
            except Exception as error:  # whatever it is, it must not be lost in a thread
                failure = error if isinstance(error, JournalError) else JournalError(f"{type(error).__name__}: {error}")
                with self._change:
                    self._failure = failure
                    last = self._open
                batch.wake()
                last.wake()
                return
            with self._change:
                self._writing = None
            batch.wake()

    def _next(self) -> Batch | None:
        with self._change:
            self._change.wait_for(lambda: self._closing or self._open.items)
            if not self._open.items:
                return None
            batch, self._open = self._open, Batch()
            self._writing = batch
            return batch

    def _until_written(self, batch: Batch) -> None:
        """Raises `JournalError` where trying again cannot help, or the log is to be closed."""
        while batch.items:
            try:
                if batch.records:
                    self._journal.append_all(batch.records)
                    batch.records = []
                for seq, snapshot in batch.snapshots:
                    self._journal.save_snapshot(seq, snapshot)
                batch.snapshots = []
                self.stalled = ""
            except JournalStalled as error:
                self.stalled = str(error)
                with self._change:
                    if self._change.wait_for(lambda: self._closing, RETRY_S):
                        raise


def _soon(token: EventLoopToken) -> Callable[[Callable[[], Any]], Any]:
    """How a thread has something run in an event loop without waiting for it: asyncio's way, or trio's."""
    loop: Any = token.native_token
    return getattr(loop, "call_soon_threadsafe", None) or loop.run_sync_soon  # type: ignore[no-any-return]
