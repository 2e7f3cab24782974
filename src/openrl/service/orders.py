"""Requests that the service itself words, because it chooses their folders: they are kept in a form of our own.

Those of kind `own:...` are decoded here; every other kind came over the wire and is decoded by the wire's decoder.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from openrl.store import CheckpointKind
from openrl.work import LoadState, SaveExternal, SaveSampler, SaveState, Work

_OWN = "own:"


class Create(Struct, frozen=True, tag=True):
    """Make the model; what it is made of stands in its row."""


class Save(Struct, frozen=True, tag=True):
    """Write a checkpoint, then publish it under `path`, or as the sampling session `sampler_id`, or both."""

    kind: CheckpointKind
    folder: str
    name: str | None
    path: str | None
    sampler_id: str | None = None
    ttl_seconds: int | None = None
    overwrite: bool = True
    user_metadata: dict[str, Any] | None = None


class Load(Struct, frozen=True, tag=True):
    """Take over a checkpoint's weights."""

    folder: str
    path: str
    optimizer: bool


Order = Create | Save | Load
_SAVES: dict[CheckpointKind, type[SaveState | SaveSampler | SaveExternal]] = {
    "training": SaveState,
    "sampler": SaveSampler,
    "external": SaveExternal,
}


def encode_order(order: Order) -> bytes:
    return msgspec.msgpack.encode(order)


def decode_order(body: bytes) -> Order:
    return msgspec.msgpack.decode(body, type=Order)


def kind_of(order: Order) -> str:
    return f"{_OWN}{type(order).__name__.lower()}"


def is_own(kind: str) -> bool:
    return kind.startswith(_OWN)


def work_of(order: Save | Load) -> Work:
    if isinstance(order, Load):
        return LoadState(order.folder, order.optimizer)
    return _SAVES[order.kind](order.folder)
