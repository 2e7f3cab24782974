"""A decision log in SQLite as JSON lines, as it is on disk, also while a scheduler writes to it.

Nothing is decoded, and the file is not kept busy between two pieces: whoever reads slowly holds up nobody. Where
records are dropped meanwhile that were not read yet, that is an error, since a log has no gaps.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from tsched.errors import Invalid, JournalError
from tsched.journal.sqlite import translated

ROWS = 500

_NEXT = "SELECT seq, body FROM records WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT ?"


def sqlite_lines(path: Path, *, rows: int = ROWS) -> Iterator[bytes]:
    """The log up to now, in pieces of so many lines: the header, records, and the newest snapshot among them.

    Raises:
        Invalid: this is no log, or no scheduler has begun to write it.
        JournalError: it cannot be read, or what was to be read next was dropped meanwhile.
    """
    header, snapshot, first, last = _bounds(path)
    yield header + b"\n"
    seq = first - 1
    if snapshot is not None and snapshot[0] < first:
        yield _snapshot(*snapshot)
        snapshot = None
    while seq < last:
        until = last if snapshot is None else snapshot[0]
        yield from _records(path, seq, until, rows)
        seq = until
        if snapshot is not None:
            yield _snapshot(*snapshot)
            snapshot = None


def _records(path: Path, seq: int, until: int, rows: int) -> Iterator[bytes]:
    while seq < until:
        with translated(path), closing(_open(path)) as db:
            found = db.execute(_NEXT, (seq, until, rows)).fetchall()
        if not found or found[0][0] != seq + 1:
            raise JournalError(f"{path}: record {seq + 1} was dropped before it was read: read again, and faster")
        seq = found[-1][0]
        yield b"".join(_bytes(body) + b"\n" for _, body in found)


def _bounds(path: Path) -> tuple[bytes, tuple[int, str | bytes] | None, int, int]:
    """The header, the newest snapshot, and the first and last record; a log without records ends before it begins."""
    with translated(path), closing(_open(path)) as db:
        db.execute("BEGIN")
        header = db.execute("SELECT body FROM header").fetchone()
        snapshot = db.execute("SELECT seq, body FROM snapshots ORDER BY seq DESC LIMIT 1").fetchone()
        first, last = db.execute("SELECT min(seq), max(seq) FROM records").fetchone()
    if header is None:
        raise Invalid(f"{path}: the log has no header: no scheduler has begun to write it")
    if first is None:
        return _bytes(header[0]), snapshot, 0 if snapshot is None else snapshot[0] + 1, -1
    return _bytes(header[0]), snapshot, first, last


def _open(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)


def _snapshot(seq: int, body: str | bytes) -> bytes:
    return b'{"type":"snapshot","seq":%d,"state":%s}\n' % (seq, _bytes(body))


def _bytes(body: str | bytes) -> bytes:
    return body.encode() if isinstance(body, str) else body
