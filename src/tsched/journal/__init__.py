"""The decision log: every event that the engine took, with the commands that it answered, in order.

It is the one source of replay, recovery, metrics and reports. A scheduler writes a record before the commands are
acted upon, through a `Journal`: in memory, as JSON lines, or in SQLite, there one by one or many in one commit
(`tsched.group_commit`). Nothing here decides; a restart applies what was recorded.

    journal = SqliteJournal("decisions.db", retain_records=100_000)
    found = journal.load()            # None, or a Recovered: header, snapshot, the records after it
    journal.begin(Header(groups, "fifo"))
    journal.append(Record(seq, now, event, commands))
"""

from __future__ import annotations

import os
from pathlib import Path

from tsched.errors import Invalid
from tsched.journal.jsonl import JsonlJournal, parse_jsonl
from tsched.journal.memory import MemoryJournal
from tsched.journal.record import (
    FORMAT,
    VERSION,
    Deferred,
    Header,
    Journal,
    Record,
    Recovered,
    Snapshot,
    TruncatedLog,
)
from tsched.journal.sqlite import MAGIC, SqliteJournal, read_sqlite

__all__ = [
    "FORMAT",
    "VERSION",
    "Deferred",
    "Header",
    "Journal",
    "JsonlJournal",
    "MemoryJournal",
    "Record",
    "Recovered",
    "Snapshot",
    "SqliteJournal",
    "TruncatedLog",
    "read_log",
]


def read_log(path: str | os.PathLike[str]) -> tuple[Header, list[Record]]:
    """The header and every record of a log on disk, JSON lines or SQLite, told apart by their first bytes.

    Raises:
        Invalid: the file is not there, is no decision log, is damaged, or is of a newer version; the text says where.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            data = file.read(len(MAGIC))
            if data == MAGIC:
                return read_sqlite(path)
            data += file.read()
    except OSError as error:
        raise Invalid(f"{path}: cannot be read: {error.strerror}: the path of a decision log would be right") from None
    log = parse_jsonl(data, path)
    if log is None:
        raise Invalid(f"{path}, line 1: there is no whole header: a decision log begins with one")
    return log.header, log.records
