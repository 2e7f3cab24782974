"""Data as tensors: split into micro-batches of similar lengths, and padded at the end to one of few lengths.

All targets of a micro-batch stand in a row, so that data with one target a position and data with several mix.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from openrl.work import Array, Datum


@dataclass(frozen=True, slots=True)
class Batch:
    """Some data of a request. Tokens are (rows, positions); what belongs to targets is flat."""

    data: Sequence[int]  # which data of the request, one a row
    tokens: Tensor
    used: Tensor | None  # where in the flat tokens those of the data are; None where there is no padding
    positions: Tensor  # for every target, whose hidden state, among those used, predicts it
    targets: Tensor
    inputs: dict[str, Tensor]
    lengths: list[int]  # how many targets each datum has


def split(data: Sequence[Datum], budget: int) -> Iterator[list[int]]:
    """Data of similar lengths together, as many as stay within a budget of padded tokens; at least one."""
    order = sorted(range(len(data)), key=lambda index: (len(data[index].tokens), index))
    group: list[int] = []
    for index in order:
        if group and (len(group) + 1) * padded(len(data[index].tokens)) > budget:
            yield group
            group = []
        group.append(index)
    yield group


def padded(length: int) -> int:
    """The length to which this one is filled up."""
    step = 16 if length <= 128 else 64
    return -(-length // step) * step


def batch(data: Sequence[Datum], indices: Sequence[int], names: Sequence[str], fill: Mapping[str, float]) -> Batch:
    """The tensors of some of the data, with the inputs named; what a datum lacks is filled with a constant."""
    chosen = [data[index] for index in indices]
    width = padded(max(len(datum.tokens) for datum in chosen))
    tokens = np.zeros((len(chosen), width), np.int64)
    for row, datum in zip(tokens, chosen, strict=True):
        row[: len(datum.tokens)] = datum.tokens
    return Batch(
        data=indices,
        tokens=torch.from_numpy(tokens),
        used=_used([len(datum.tokens) for datum in chosen], width),
        positions=torch.from_numpy(_positions(chosen)),
        targets=_flat([datum.inputs["target_tokens"] for datum in chosen], np.int64),
        inputs={name: _flat([_input(datum, name, fill) for datum in chosen], np.float32) for name in names},
        lengths=[datum.inputs["target_tokens"].size for datum in chosen],
    )


def _used(lengths: Sequence[int], width: int) -> Tensor | None:
    if all(length == width for length in lengths):
        return None
    places = [np.arange(length) + row * width for row, length in enumerate(lengths)]
    return torch.from_numpy(np.concatenate(places))


def _positions(data: Sequence[Datum]) -> Array:
    each = [datum.inputs["target_tokens"].size // len(datum.tokens) for datum in data]
    counts = np.repeat(each, [len(datum.tokens) for datum in data])
    return np.repeat(np.arange(len(counts), dtype=np.int64), counts)


def _input(datum: Datum, name: str, fill: Mapping[str, float]) -> Array:
    given = datum.inputs.get(name)
    return np.full(datum.inputs["target_tokens"].shape, fill[name], np.float32) if given is None else given


def _flat(arrays: Sequence[Array], dtype: type[np.generic]) -> Tensor:
    return torch.from_numpy(np.concatenate([array.ravel() for array in arrays]).astype(dtype, copy=False))
