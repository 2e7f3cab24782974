"""A decision log in SQLite: every append, of one record or many, is a committed transaction with a full sync.

The database is in write-ahead mode, so that it can be read meanwhile.
Record numbers are the primary key, so a second scheduler that writes to the same log is refused at its first append.
The file's `user_version` is the version of the schema.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from tsched.errors import Invalid, JournalError, JournalStalled
from tsched.journal.memory import first_retained
from tsched.journal.record import Header, Record, Recovered, check_follows, encode, read_header, read_record

SCHEMA_VERSION = 1
PASSING = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
MAGIC = b"SQLite format 3\0"

_SCHEMA = f"""
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS header (id INTEGER PRIMARY KEY CHECK (id = 1), body TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS records (seq INTEGER PRIMARY KEY, body TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS snapshots (seq INTEGER PRIMARY KEY, body TEXT NOT NULL);
PRAGMA user_version = {SCHEMA_VERSION};
COMMIT;
"""


_APPEND = """
INSERT INTO records SELECT ?1, ?2 WHERE ?1 > max(
    coalesce((SELECT max(seq) FROM records), -1), coalesce((SELECT max(seq) FROM snapshots), -1))
"""


class SqliteJournal:
    """With `retain_records`, a snapshot drops all records before it but the newest so many."""

    def __init__(self, path: str | os.PathLike[str], *, retain_records: int | None = None) -> None:
        self.path = Path(path)
        self._retain = retain_records
        with translated(self.path):
            self._db = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
            try:
                self._db.execute("PRAGMA journal_mode = WAL")
                self._db.execute("PRAGMA synchronous = FULL")
                _check_schema(self._db, self.path)
                self._db.executescript(_SCHEMA)
            except BaseException:
                self._db.close()
                raise

    def begin(self, header: Header) -> None:
        with translated(self.path):
            self._db.execute("INSERT OR REPLACE INTO header VALUES (1, ?)", (encode(header).decode(),))

    def append(self, record: Record) -> None:
        with _writing(self.path, record):
            self._insert(record)

    def append_all(self, records: list[Record]) -> None:
        """Append all of them in one transaction, or none. Raises as `append`."""
        with _writing(self.path, records[0]), self._transaction():
            for record in records:
                self._insert(record)

    def _insert(self, record: Record) -> None:
        if not self._db.execute(_APPEND, (record.seq, encode(record).decode())).rowcount:
            raise JournalError(
                f"{self.path}: record {record.seq} does not follow: somebody else writes to this log, "
                "and only one scheduler may"
            )

    def load(self) -> Recovered | None:
        with translated(self.path):
            return _load(self._db, self.path)

    def save_snapshot(self, seq: int, snapshot: dict[str, Any]) -> None:
        with translated(self.path), self._transaction():
            self._db.execute("DELETE FROM snapshots")
            self._db.execute("INSERT INTO snapshots VALUES (?, ?)", (seq, encode(snapshot).decode()))
            if self._retain is not None:
                (last_seq,) = self._db.execute("SELECT coalesce(max(seq), ?) FROM records", (seq,)).fetchone()
                self._db.execute("DELETE FROM records WHERE seq < ?", (first_retained(last_seq, seq, self._retain),))

    def close(self) -> None:
        self._db.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:  # SQLite has ended it by itself where the disk is full
                self._db.execute("ROLLBACK")
            raise


def read_sqlite(path: Path) -> tuple[Header, list[Record]]:
    """Every record that the file holds; it is opened for reading alone, also while a scheduler writes to it."""
    in_use = path.with_name(path.name + "-wal").exists()
    address = f"{path.absolute().as_uri()}?mode=ro" + ("" if in_use else "&immutable=1")
    with translated(path):
        db = sqlite3.connect(address, uri=True)
        try:
            _check_schema(db, path)
            header = _header(db, path)
            if header is None:
                raise Invalid(f"{path}: the log has no header: no scheduler has begun to write it")
            return header, _records(db, path, after=None)
        finally:
            db.close()


def _load(db: sqlite3.Connection, path: Path) -> Recovered | None:
    header = _header(db, path)
    if header is None:
        return None
    row = db.execute("SELECT seq, body FROM snapshots ORDER BY seq DESC LIMIT 1").fetchone()
    if row is None:
        return Recovered(header, records=tuple(_records(db, path, after=None)))
    return Recovered(header, _state(row[1], path), row[0], tuple(_records(db, path, after=row[0])))


def _header(db: sqlite3.Connection, path: Path) -> Header | None:
    row = db.execute("SELECT body FROM header").fetchone()
    return read_header(_bytes(row[0]), f"{path}, header") if row else None


def _records(db: sqlite3.Connection, path: Path, *, after: int | None) -> list[Record]:
    query = "SELECT seq, body FROM records WHERE ? IS NULL OR seq > ? ORDER BY seq"
    records: list[Record] = []
    for seq, body in db.execute(query, (after, after)):
        where = f"{path}, record {seq}"
        record = read_record(_bytes(body), where)
        check_follows(records[-1] if records else None, record, where)
        records.append(record)
    return records


def _state(body: str | bytes, path: Path) -> dict[str, Any]:
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise Invalid(f"{path}, snapshot: {error}: a JSON object would be right") from None


def _bytes(body: str | bytes) -> bytes:
    return body.encode() if isinstance(body, str) else body


def _check_schema(db: sqlite3.Connection, path: Path) -> None:
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version > SCHEMA_VERSION:
        raise Invalid(
            f"{path}: schema version {version} is newer than {SCHEMA_VERSION}, the newest that can be read here: "
            "upgrade tsched to read this log"
        )
    (tables,) = db.execute("SELECT count(*) FROM sqlite_master WHERE type = 'table'").fetchone()
    if version == 0 and tables:
        raise Invalid(f"{path}: this is an SQLite file of something else, not a decision log")


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """SQLite's errors as ours: what is no log is `Invalid`, what cannot be done is `JournalError`."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise _failure(error)(f"{path}: {error}") from error
    except sqlite3.DatabaseError as error:
        raise Invalid(f"{path}: {error}: a decision log in SQLite would be right") from error


@contextmanager
def _writing(path: Path, record: Record) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise _failure(error)(f"{path}: record {record.seq} cannot be written: {error}") from error


def _failure(error: sqlite3.Error) -> type[JournalError]:
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    return JournalStalled if code & 0xFF in PASSING else JournalError  # the low byte is the kind of error
