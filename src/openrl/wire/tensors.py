"""Tensors of the wire to numpy and back: dense or in compressed rows, as bytes or as numbers.

Results are writable only where they had to be copied; sparse tensors become dense, 0 where nothing is listed.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from openrl.wire import tinker_public_pb2 as pb
from openrl.wire.refusal import Malformed
from openrl.wire.training import JsonTensor
from openrl.work import Array

DTYPES: dict[int, np.dtype[Any]] = {
    pb.DTYPE_FLOAT32: np.dtype("<f4"),
    pb.DTYPE_INT64: np.dtype("<i8"),
    pb.DTYPE_INT32: np.dtype("<i4"),
    pb.DTYPE_BFLOAT16: np.dtype("<u2"),
}
MAX_CELLS = 1 << 24  # of a sparse tensor: a few bytes of it can ask for any amount of memory


def from_proto(name: str, tensor: pb.Tensor) -> Array:
    """The array, float32 or int64. Raises Malformed with `name` if bytes and shape disagree."""
    dtype = DTYPES.get(tensor.dtype)
    if dtype is None:
        raise Malformed(f"{name} has dtype {tensor.dtype}; float32, int64, int32 and bfloat16 are 1, 2, 3 and 4")
    shape = list(tensor.shape)
    if tensor.HasField("sparse_csr"):
        csr = tensor.sparse_csr
        rows, columns = (
            numbers(name, csr.crow_indices, np.dtype("<i8")),
            numbers(name, csr.col_indices, np.dtype("<i8")),
        )
        return checked(name, dense(name, widened(numbers(name, csr.values, dtype)), rows, columns, shape))
    return checked(name, shaped(name, widened(numbers(name, tensor.dense, dtype)), shape))


def from_json(name: str, tensor: JsonTensor, unlisted: int = 0) -> Array:
    """As `from_proto`, from numbers; a sparse tensor holds `unlisted` where nothing is listed."""
    try:
        values = np.asarray(tensor.data, dtype=np.dtype(tensor.dtype))
    except (OverflowError, ValueError) as error:
        raise Malformed(f"{name} holds a number that does not fit {tensor.dtype}: {error}") from error
    shape = tensor.shape if tensor.shape is not None else [len(tensor.data)]
    if tensor.sparse_crow_indices is None:
        return checked(name, shaped(name, values, shape))
    rows, columns = (integers(name, found) for found in (tensor.sparse_crow_indices, tensor.sparse_col_indices or []))
    return checked(name, dense(name, values, rows, columns, shape, unlisted))


def integers(name: str, values: list[int]) -> Array:
    """Indices, from numbers."""
    try:
        return np.asarray(values, dtype=np.int64)
    except OverflowError as error:
        raise Malformed(f"{name} holds an index beyond 64 bits: {error}") from error


def numbers(name: str, data: bytes, dtype: np.dtype[Any]) -> Array:
    """A view of the bytes."""
    if len(data) % dtype.itemsize:
        raise Malformed(f"{name} has {len(data)} bytes, which is no multiple of {dtype.itemsize}, its item's size")
    return np.frombuffer(data, dtype=dtype)


def widened(values: Array) -> Array:
    """To the two types that the work is done in: int32 as int64, bfloat16 (as 16 bits) as float32."""
    if values.dtype == np.dtype("<i4"):
        return values.astype(np.int64)
    if values.dtype == np.dtype("<u2"):
        return (values.astype(np.uint32) << 16).view(np.float32)
    return values


def shaped(name: str, values: Array, shape: list[int]) -> Array:
    """An empty shape is that of a flat list."""
    if not shape:
        return values
    if min(shape) < 0 or math.prod(shape) != values.size:
        raise Malformed(f"{name} has {values.size} numbers, which do not fill its shape {shape}")
    return values.reshape(shape)


def dense(name: str, values: Array, rows: Array, columns: Array, shape: list[int], unlisted: int = 0) -> Array:
    """Compressed rows spread out: row i holds the values from rows[i] up to rows[i + 1], at their columns."""
    if len(shape) != 2 or min(shape) < 0 or math.prod(shape) > MAX_CELLS:
        raise Malformed(f"{name} is sparse, and its shape {shape} is not one of (rows, columns) within reason")
    well_formed = (
        len(rows) == shape[0] + 1
        and rows[0] == 0
        and rows[-1] == len(values) == len(columns)
        and bool((np.diff(rows) >= 0).all())
        and (not len(columns) or (columns.min() >= 0 and columns.max() < shape[1]))
    )
    if not well_formed:
        raise Malformed(
            f"{name} is sparse, and its row pointers and columns do not fit {len(values)} values in {shape}"
        )
    out = np.full(shape, unlisted, dtype=values.dtype)
    out[np.repeat(np.arange(shape[0]), np.diff(rows)), columns] = values
    return out


def checked(name: str, values: Array) -> Array:
    """As they are, if all are numbers."""
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        where = int(np.flatnonzero(~np.isfinite(values.ravel()))[0])
        raise Malformed(
            f"{name} holds {values.ravel()[where]} at position {where}; only finite numbers can be trained on"
        )
    return values


def to_proto(values: Array) -> pb.Tensor:
    """A dense tensor of float32 or int64."""
    kind, dtype = (pb.DTYPE_FLOAT32, np.float32) if values.dtype.kind == "f" else (pb.DTYPE_INT64, np.int64)
    data = np.ascontiguousarray(values, dtype=dtype).tobytes()
    return pb.Tensor(dense=data, dtype=kind, shape=list(values.shape))


def to_json(values: Array) -> dict[str, Any]:
    """As `to_proto`, as numbers."""
    dtype = "float32" if values.dtype.kind == "f" else "int64"
    return {"data": values.ravel().tolist(), "dtype": dtype, "shape": list(values.shape)}
