"""A decision log in memory: appending is a list's append; it outlives a scheduler, not the process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tsched.journal.record import Header, Record, Recovered


class MemoryJournal:
    """Keeps every record in `records`, and the newest snapshot.

    With `retain_records`, a snapshot drops what is older than it but for the newest so many.
    """

    append: Callable[[Record], None]  # the list's own: nothing is faster

    def __init__(self, *, retain_records: int | None = None) -> None:
        self.header: Header | None = None
        self.records: list[Record] = []
        self.append = self.records.append
        self._retain = retain_records
        self._snapshot: dict[str, Any] | None = None
        self._snapshot_seq = -1

    def begin(self, header: Header) -> None:
        self.header = header

    def load(self) -> Recovered | None:
        if self.header is None:
            return None
        tail = tuple(record for record in self.records if record.seq > self._snapshot_seq)
        return Recovered(self.header, self._snapshot, self._snapshot_seq, tail)

    def save_snapshot(self, seq: int, snapshot: dict[str, Any]) -> None:
        self._snapshot, self._snapshot_seq = snapshot, seq
        if self._retain is not None:
            first = first_retained(self.records[-1].seq if self.records else seq, seq, self._retain)
            self.records[:] = [record for record in self.records if record.seq >= first]

    def close(self) -> None:
        """Nothing is held open."""


def first_retained(last_seq: int, snapshot_seq: int, retain_records: int) -> int:
    """The first record to keep: the newest `retain_records`, and in any case all after the snapshot."""
    return min(last_seq - retain_records, snapshot_seq) + 1
