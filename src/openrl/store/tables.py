"""How a row becomes a line of its table and comes back: the columns are the fields, what is no plain value is JSON."""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar, get_type_hints

import msgspec
from msgspec import Struct

from openrl.store import rows

R = TypeVar("R", bound=Struct)
_PLAIN = {str, int, bytes, str | None, int | None}


def table(kind: type[Struct]) -> str:
    return kind.__name__.lower()


@cache
def columns(kind: type[Struct]) -> tuple[str, ...]:
    """The fields in order; the first is the key."""
    return kind.__struct_fields__


@cache
def insert(kind: type[Struct], replace: bool) -> str:
    names = columns(kind)
    verb = "INSERT OR REPLACE" if replace else "INSERT"
    return f"{verb} INTO {table(kind)} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"


@cache
def select(kind: type[Struct]) -> str:
    return f"SELECT {', '.join(columns(kind))} FROM {table(kind)}"


def values(row: Struct) -> list[Any]:
    return [column(type(row), name, getattr(row, name)) for name in columns(type(row))]


def column(kind: type[Struct], name: str, value: Any) -> Any:
    """The value as SQLite takes it."""
    if isinstance(value, bool):
        return int(value)
    if value is None or name not in _not_plain(kind):
        return value
    return msgspec.json.encode(value).decode()


def read(kind: type[R], found: tuple[Any, ...]) -> R:
    fields = dict(zip(columns(kind), found, strict=True))
    for name, hint in _not_plain(kind).items():
        if fields[name] is not None:
            fields[name] = bool(fields[name]) if hint is bool else msgspec.json.decode(fields[name], type=hint)
    return kind(**fields)


@cache
def _not_plain(kind: type[Struct]) -> dict[str, Any]:
    hints = get_type_hints(kind, vars(rows))
    return {name: hint for name, hint in hints.items() if hint not in _PLAIN and not _is_text(hint)}


def _is_text(hint: Any) -> bool:
    return hint in (rows.CheckpointKind, rows.RequestState)
