"""A log that tells how long each of its commits took."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tsched.group_commit import Batched
from tsched.journal import Header, Record, Recovered

Told = Callable[[float, bool], None]


class Timed:
    """The journal that it is given, but `told` hears of every commit: its seconds, and whether it failed."""

    def __init__(self, journal: Batched, told: Told) -> None:
        self._journal, self._told = journal, told

    def begin(self, header: Header) -> None:
        self._journal.begin(header)

    def append(self, record: Record) -> None:
        self.append_all([record])

    def append_all(self, records: list[Record]) -> None:
        began = time.perf_counter()
        try:
            self._journal.append_all(records)
        except BaseException:
            self._told(time.perf_counter() - began, True)
            raise
        self._told(time.perf_counter() - began, False)

    def load(self) -> Recovered | None:
        return self._journal.load()

    def save_snapshot(self, seq: int, snapshot: dict[str, Any]) -> None:
        self._journal.save_snapshot(seq, snapshot)

    def close(self) -> None:
        self._journal.close()
