"""What a client is told of its request, and how answers are kept as bytes. Plain values."""

from __future__ import annotations

from typing import Any, Generic, Literal, TypeVar

import msgspec
import numpy as np
from msgspec import Struct

from openrl.errors import Category
from openrl.work import ForwardBackwardResult, OptimResult, SampleResult

T = TypeVar("T")
QueueState = Literal["active", "paused_capacity"]


class Ready(Struct, frozen=True):
    """The model can be used; `path` is the checkpoint that was loaded."""

    model_id: str
    path: str | None = None


class Saved(Struct, frozen=True):
    """A checkpoint is published: under `path`, or as a sampling session."""

    path: str | None
    sampling_session_id: str | None
    size_bytes: int


Value = ForwardBackwardResult | OptimResult | SampleResult | Saved | Ready


class Accepted(Struct, frozen=True):
    """The request is kept and will be answered under this id."""

    request_id: str
    model_id: str


class SampleAccepted(Struct, frozen=True):
    request_id: str
    sample_sequence_ids: tuple[str, ...]


class Pending(Struct, frozen=True):
    """No answer yet; `reason` says what it waits for."""

    queue_state: QueueState
    reason: str


class Done(Struct, frozen=True):
    value: Value


class Failure(Struct, frozen=True):
    error: str
    category: Category | Literal["unknown"] = "server"


Answered = Done | Failure


class Page(Struct, Generic[T], frozen=True):
    """Some of `total` items."""

    items: list[T]
    total: int


_TYPES: dict[str, type[Value]] = {
    kind.__name__: kind for kind in (ForwardBackwardResult, OptimResult, SampleResult, Saved, Ready)
}


def encode_value(value: Value) -> tuple[str, bytes]:
    """The name of its type, and its bytes."""
    return type(value).__name__, msgspec.msgpack.encode(value, enc_hook=_write_array)


def decode_value(name: str, body: bytes) -> Value:
    return msgspec.msgpack.decode(body, type=_TYPES[name], dec_hook=_read_array)


def _write_array(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, np.ascontiguousarray(value).tobytes()
    raise NotImplementedError(f"a {type(value).__name__} cannot be kept")


def _read_array(_: type, found: Any) -> Any:
    dtype, shape, body = found
    return np.frombuffer(body, dtype).reshape(shape)
