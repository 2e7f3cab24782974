"""Is a batch what its loss takes? A mistake is a `RequestError` that names the datum, the input and what is wrong."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from openrl import losses
from openrl.errors import RequestError
from openrl.work import Array, Datum, ForwardBackward


def check(work: ForwardBackward, vocab_size: int, context_length: int) -> None:
    """Raise for anything in the work that would not give a loss and gradients."""
    losses.configured(work.loss, work.config)
    if not work.data:
        raise RequestError("the batch is empty: pass at least one datum")
    loss = losses.named(work.loss)
    for index, datum in enumerate(work.data):
        where = f"datum {index}"
        _check_tokens(datum.tokens, vocab_size, context_length, where)
        _check_names(datum, loss, work.loss, where)
        _check_inputs(datum, loss.several_targets, vocab_size, where)


def check_ids(ids: Array, vocab_size: int, what: str) -> None:
    """Raise unless all are ids of tokens."""
    if ids.dtype.kind not in "iu":
        raise RequestError(f"{what} must be integers, not {ids.dtype}")
    if ids.size and (ids.min() < 0 or ids.max() >= vocab_size):
        wrong = ids.min() if ids.min() < 0 else ids.max()
        raise RequestError(f"{what} have the token id {wrong}, and the vocabulary has ids from 0 to {vocab_size - 1}")


def _check_tokens(tokens: Array, vocab_size: int, context_length: int, where: str) -> None:
    if tokens.ndim != 1 or tokens.size == 0:
        raise RequestError(
            f"{where}: model_input must be a sequence of at least one token, not of shape {tokens.shape}"
        )
    if tokens.size > context_length:
        raise RequestError(
            f"{where}: model_input has {tokens.size} tokens, and the model's context is {context_length}"
        )
    check_ids(tokens, vocab_size, f"{where}: tokens of model_input")


def _check_names(datum: Datum, loss: losses.Loss, name: str, where: str) -> None:
    required = ("target_tokens", *loss.required)
    missing = [key for key in required if key not in datum.inputs]
    extra = [key for key in datum.inputs if key not in required and key not in loss.optional]
    if missing:
        raise RequestError(f"{where}: loss {name!r} needs the inputs {', '.join(missing)}")
    if extra:
        takes = ", ".join((*required, *loss.optional))
        raise RequestError(f"{where}: loss {name!r} takes no input {', '.join(extra)}; it takes {takes}")


def _check_inputs(datum: Datum, several_targets: bool, vocab_size: int, where: str) -> None:
    targets, length = datum.inputs["target_tokens"], len(datum.tokens)
    if targets.ndim not in (1, 1 + several_targets) or len(targets) != length or targets.size == 0:
        needed = f"({length},)" + f" or ({length}, K)" * several_targets
        raise RequestError(f"{where}: target_tokens must have the shape {needed}, not {targets.shape}")
    check_ids(targets, vocab_size, f"{where}: target_tokens")
    for key, values in datum.inputs.items():
        if key != "target_tokens":
            _check_values(values, targets.shape, f"{where}: {key}")
    if "sequence_ratio_mask" in datum.inputs and not datum.inputs["sequence_ratio_mask"].any():
        raise RequestError(f"{where}: sequence_ratio_mask marks no token, so that the sequence has no ratio")


def _check_values(values: Array, shape: Sequence[int], what: str) -> None:
    if values.shape != tuple(shape):
        raise RequestError(f"{what} must have the shape of target_tokens, {tuple(shape)}, not {values.shape}")
    if values.dtype.kind not in "fiub" or not np.isfinite(values).all():
        raise RequestError(f"{what} must be finite numbers: it has NaN or infinity, or is of type {values.dtype}")
