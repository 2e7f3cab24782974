"""The store port: what the service needs kept, and `open_store` for the SQLite file that keeps it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from openrl.store.rows import (
    Checkpoint,
    CheckpointKind,
    Key,
    Model,
    Once,
    Payload,
    Request,
    Result,
    Row,
    Sampler,
    Session,
)
from openrl.store.sqlite import SqliteStore
from openrl.store.tables import R
from openrl.store.writes import Add, Answer, Change, Expire, MadeDurable, Remove, Write

__all__ = [
    "Add",
    "Answer",
    "Change",
    "Checkpoint",
    "CheckpointKind",
    "Expire",
    "Key",
    "MadeDurable",
    "Model",
    "Once",
    "Payload",
    "R",
    "Remove",
    "Request",
    "Result",
    "Row",
    "Sampler",
    "Session",
    "SqliteStore",
    "Store",
    "Write",
    "open_store",
]


class Store(Protocol):
    """Rows by table. Used by one thread at a time; blocking, never async. Raises `StoreError` when it cannot."""

    def commit(self, writes: Sequence[Write]) -> None:
        """Make all these changes or none; they are kept when this returns."""
        ...

    def get(self, kind: type[R], key: str) -> R | None:
        """The row of this key, the first field of its class."""
        ...

    def find(
        self, kind: type[R], /, *, limit: int = -1, offset: int = 0, newest_first: bool = False, **equal: Any
    ) -> list[R]:
        """The rows whose fields have these values, in the order in which they came."""
        ...

    def count(self, kind: type[Row], /, **equal: Any) -> int: ...

    def units_after(self, model_id: str, seq: int) -> list[Request]:
        """A model's requests beyond this number, in order."""
        ...

    def waiting(self) -> list[Request]:
        """The requests without an answer, in the order in which they came."""
        ...

    def kept(self, kind: str) -> list[Request]:
        """The requests of this kind that may have to be run again."""
        ...

    def payload(self, request_id: str) -> bytes:
        """What the request asks for; `StoreError` if that was let go of."""
        ...

    def expired_checkpoints(self, now_us: int) -> list[Checkpoint]: ...

    def idle_sessions(self, before_us: int) -> list[Session]:
        """Sessions that have not ended and were not heard of since."""
        ...

    def compact(self) -> None:
        """Tidy the files; may block on the disk, and may be called from another thread."""
        ...

    def close(self) -> None: ...


def open_store(path: str | Path) -> SqliteStore:
    """The store in this file, made if there is none, migrated if it is older; `StoreInvalid` if it is newer."""
    return SqliteStore(Path(path))
