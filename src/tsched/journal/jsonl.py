"""A decision log as text: one JSON object a line, for people, `jq` and `git diff`.

A record is one `write` of one line, so a crash can cut short the last line and no other; what is read leaves that one
out and says so, and the next append writes over it. A log that holds a complete line which cannot be understood was
damaged otherwise, and is refused.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from tsched.errors import Invalid, JournalError
from tsched.journal.memory import first_retained
from tsched.journal.record import (
    Header,
    Record,
    Recovered,
    Snapshot,
    TruncatedLog,
    check_follows,
    encode,
    read_header,
    read_line,
)

HEADER_START = b'{"type":"header"'


class JsonlJournal:
    """Appends survive the death of the process; with `fsync`, that of the machine too.

    With `retain_records`, a snapshot rewrites the file: the snapshot, what follows it, and the newest so many.
    """

    def __init__(self, path: str | os.PathLike[str], *, retain_records: int | None = None, fsync: bool = False) -> None:
        self.path = Path(path)
        self._retain = retain_records
        self._fsync = fsync
        self._file: int | None = None
        self._end = 0

    def begin(self, header: Header) -> None:
        kept = self._read()
        if kept is None or kept.header != header:
            self._replace(header, kept.snapshot if kept else None, kept.records if kept else [])
        else:
            self._open(kept.end, unterminated=kept.unterminated)

    def append(self, record: Record) -> None:
        self._write(encode(record) + b"\n")

    def load(self) -> Recovered | None:
        kept = self._read()
        return kept.recovered() if kept else None

    def save_snapshot(self, seq: int, snapshot: dict[str, Any]) -> None:
        newest = Snapshot(seq, snapshot)
        if self._retain is None:
            self._write(encode(newest) + b"\n")
            return
        kept = self._read()
        if kept is None:
            raise JournalError(f"{self.path}: the log is gone: call begin() before a snapshot")
        first = first_retained(kept.records[-1].seq if kept.records else seq, seq, self._retain)
        self._replace(kept.header, newest, [record for record in kept.records if record.seq >= first])

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _read(self) -> Log | None:
        return parse_jsonl(self.path.read_bytes(), self.path) if self.path.exists() else None

    def _write(self, line: bytes) -> None:
        if self._file is None:
            raise JournalError(f"{self.path}: the log is not open: call begin() before the first append")
        if os.fstat(self._file).st_size != self._end or not self._is_ours(self._file):
            raise JournalError(f"{self.path}: somebody else wrote to this log: only one scheduler may")
        try:
            written = os.write(self._file, line)
            if written < len(line):
                raise OSError(f"only {written} of {len(line)} bytes could be written")
            if self._fsync:
                os.fsync(self._file)
        except OSError as error:
            os.ftruncate(self._file, self._end)
            raise JournalError(f"{self.path}: cannot be written: {error}") from error
        self._end += written

    def _is_ours(self, file: int) -> bool:
        """Whether the path still leads to the file that is open: another writer may have put a new one there."""
        try:
            return os.path.samestat(os.fstat(file), os.stat(self.path))
        except FileNotFoundError:
            return False

    def _open(self, end: int, *, unterminated: bool = False) -> None:
        """Open for appending after byte `end`; what follows it is the torn rest of a line."""
        self.close()
        try:
            self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND)
            os.ftruncate(self._file, end)
        except OSError as error:
            raise JournalError(f"{self.path}: cannot be opened: {error}") from error
        self._end = end
        if unterminated:
            self._write(b"\n")

    def _replace(self, header: Header, snapshot: Snapshot | None, records: list[Record]) -> None:
        """Write the whole log anew, then put it in the old one's place: a crash leaves one of the two, entire."""
        lines: list[Header | Record | Snapshot] = [header, *records]
        if snapshot is not None:
            older = sum(record.seq <= snapshot.seq for record in records)
            lines.insert(1 + older, snapshot)
        beside = self.path.with_name(self.path.name + ".new")
        try:
            with beside.open("wb") as file:
                file.writelines(encode(line) + b"\n" for line in lines)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self.path)
        except OSError as error:
            raise JournalError(f"{self.path}: cannot be written: {error}") from error
        self._open(self.path.stat().st_size)


class Log(Struct):
    """A JSONL log as read; it is whole up to byte `end`, where its newline may be missing."""

    header: Header
    snapshot: Snapshot | None
    records: list[Record]
    end: int
    unterminated: bool

    def recovered(self) -> Recovered:
        if self.snapshot is None:
            return Recovered(self.header, records=tuple(self.records))
        tail = tuple(record for record in self.records if record.seq > self.snapshot.seq)
        return Recovered(self.header, self.snapshot.state, self.snapshot.seq, tail)


def parse_jsonl(data: bytes, path: Path) -> Log | None:
    """The log in `data`; None where there is not even a whole header. Warns of a last line that is cut short."""
    *lines, last = data.split(b"\n")
    whole = _is_json(last)
    if whole:
        lines.append(last)
    elif last:
        warnings.warn(
            f"{path}, line {len(lines) + 1}: the last line is cut short, as by a crash; it is left out",
            TruncatedLog,
            stacklevel=2,
        )
    if not lines:
        if last and not last.startswith(HEADER_START[: len(last)]):
            raise Invalid(f"{path}: is no decision log, it does not begin with a header; name another file")
        return None
    log = Log(read_header(lines[0], f"{path}, line 1"), None, [], len(data) - (0 if whole else len(last)), whole)
    for number, line in enumerate(lines[1:], start=2):
        _take(log, line, f"{path}, line {number}")
    return log


def _take(log: Log, line: bytes, where: str) -> None:
    match read_line(line, where):
        case Record() as record:
            check_follows(log.records[-1] if log.records else None, record, where)
            log.records.append(record)
        case Snapshot() as snapshot:
            log.snapshot = snapshot
        case Header():
            raise Invalid(f"{where}: a second header: only the first line may be one")


def _is_json(line: bytes) -> bool:
    try:
        msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True
