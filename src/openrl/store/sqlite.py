"""The store in one SQLite file, in write-ahead mode: what `commit` returned from survives the process, not a power cut.

One connection, used from one thread. Moving the write-ahead log into the file waits for the disk; `compact` does that
on a connection of its own, so that another thread may.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from openrl.errors import StoreError, StoreInvalid
from openrl.store.changes import apply
from openrl.store.rows import Checkpoint, Payload, Request, Session
from openrl.store.schema import migrate
from openrl.store.tables import R, column, columns, read, select, table
from openrl.store.writes import Write

_WAIT_S = 5.0
_LOG_PAGES = 16_384  # 64 MiB: a commit that finds the log so long, because nobody compacted, does it itself


class SqliteStore:
    """A `Store`. Opening it brings the file to this version's schema."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with _translated(path):
            self._db = sqlite3.connect(path, isolation_level=None, timeout=_WAIT_S, check_same_thread=False)
            try:
                self._db.execute("PRAGMA journal_mode = WAL")
                self._db.execute("PRAGMA synchronous = NORMAL")
                self._db.execute(f"PRAGMA wal_autocheckpoint = {_LOG_PAGES}")
                migrate(self._db, path)
            except BaseException:
                self._db.close()
                raise

    def commit(self, writes: Sequence[Write]) -> None:
        with _translated(self.path), self._transaction():
            for write in writes:
                apply(self._db, write)

    def get(self, kind: type[R], key: str) -> R | None:
        found = self._rows(kind, f"WHERE {columns(kind)[0]} = ?", (key,))
        return found[0] if found else None

    def find(
        self, kind: type[R], /, *, limit: int = -1, offset: int = 0, newest_first: bool = False, **equal: Any
    ) -> list[R]:
        order = f"ORDER BY created_us DESC, {columns(kind)[0]}" if newest_first else "ORDER BY rowid"
        where, wanted = _where(kind, equal)
        return self._rows(kind, f"{where} {order} LIMIT ? OFFSET ?", (*wanted, limit, offset))

    def count(self, kind: type[Struct], /, **equal: Any) -> int:
        where, wanted = _where(kind, equal)
        with _translated(self.path):
            return int(self._db.execute(f"SELECT count(*) FROM {table(kind)} {where}", wanted).fetchone()[0])

    def units_after(self, model_id: str, seq: int) -> list[Request]:
        return self._rows(Request, "WHERE model_id = ? AND seq > ? ORDER BY seq", (model_id, seq))

    def waiting(self) -> list[Request]:
        return self._rows(Request, "WHERE state = 'waiting' ORDER BY rowid", ())

    def kept(self, kind: str) -> list[Request]:
        return self._rows(Request, "WHERE request_id IN (SELECT request_id FROM payload) AND kind = ?", (kind,))

    def payload(self, request_id: str) -> bytes:
        found = self.get(Payload, request_id)
        if found is None:
            raise StoreError(f"{self.path}: the payload of request {request_id} is not there: it cannot be run again")
        return found.body

    def expired_checkpoints(self, now_us: int) -> list[Checkpoint]:
        return self._rows(Checkpoint, "WHERE expires_us <= ?", (now_us,))

    def idle_sessions(self, before_us: int) -> list[Session]:
        return self._rows(Session, "WHERE ended_us IS NULL AND last_seen_us < ?", (before_us,))

    def compact(self) -> None:
        with _translated(self.path), closing(sqlite3.connect(self.path, timeout=_WAIT_S)) as db:
            db.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def close(self) -> None:
        self._db.close()

    def _rows(self, kind: type[R], tail: str, wanted: tuple[Any, ...]) -> list[R]:
        with _translated(self.path):
            return [read(kind, found) for found in self._db.execute(f"{select(kind)} {tail}", wanted)]

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise


def _where(kind: type[Struct], equal: dict[str, Any]) -> tuple[str, tuple[Any, ...]]:
    terms = [f"{name} IS ?" if value is None else f"{name} = ?" for name, value in equal.items()]
    wanted = tuple(column(kind, name, value) for name, value in equal.items())
    return ("WHERE " + " AND ".join(terms) if terms else ""), wanted


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    """SQLite's errors as ours: what is no store is `StoreInvalid`, what cannot be done now is `StoreError`."""
    try:
        yield
    except sqlite3.IntegrityError as error:
        raise StoreError(f"{path}: {error}: a row of this key is there already") from error
    except sqlite3.OperationalError as error:
        raise StoreError(f"{path}: {error}: see that its folder exists, is writable and has room") from error
    except sqlite3.DatabaseError as error:
        raise StoreInvalid(
            f"{path}: {error}: a store of openrl would be right; restore the file or name another"
        ) from error
