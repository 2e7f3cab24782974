"""The changes that a store takes, many in one transaction. Plain values."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from openrl.store.rows import Row


class Add(Struct, frozen=True):
    """Put a row in; one of the same key must not be there, unless `replace`."""

    row: Row
    replace: bool = False


class Change(Struct, frozen=True):
    """Give fields of one row new values, or with `grows` add to them; a row that is gone stays gone."""

    table: type[Row]
    key: str
    values: dict[str, Any]
    grows: bool = False


class Remove(Struct, frozen=True):
    table: type[Row]
    key: str


class Answer(Struct, frozen=True):
    """A request gets its answer, unless it has one. The payload of what need never be run again goes."""

    request_id: str
    now_us: int
    result_type: str | None = None
    result: bytes | None = None
    error: str | None = None
    category: str | None = None


class MadeDurable(Struct, frozen=True):
    """A model's state on disk holds all units up to `seq`; their payloads go."""

    model_id: str
    seq: int
    folder: str


class Expire(Struct, frozen=True):
    """Results and notes from before `results_us` go, and of samples from before `samples_us` every trace."""

    results_us: int
    samples_us: int


Write = Add | Change | Remove | Answer | MadeDurable | Expire
