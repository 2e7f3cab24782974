"""Mistakes in a batch: each is refused with a text that names the datum and what is wrong with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from openrl import datums
from openrl.errors import RequestError
from openrl.work import Datum, ForwardBackward

GOOD = np.arange(5)
FLOATS = np.zeros(5, np.float32)
POLICY: dict[str, Any] = {"target_tokens": GOOD, "logprobs": FLOATS, "advantages": FLOATS}


def check(loss: str, tokens: Any, **inputs: Any) -> None:
    good = Datum(GOOD, {"target_tokens": GOOD} if loss == "cross_entropy" else {**POLICY})
    datums.check(ForwardBackward([good, Datum(tokens, inputs)], loss), vocab_size=10, context_length=6)


MISTAKES: list[tuple[str, Any, dict[str, Any], str]] = [
    ("cross_entropy", np.zeros(0, np.int64), {"target_tokens": GOOD}, "at least one token"),
    ("cross_entropy", np.zeros((5, 1), np.int64), {"target_tokens": GOOD}, "not of shape (5, 1)"),
    ("cross_entropy", np.zeros(7, np.int64), {"target_tokens": GOOD}, "7 tokens, and the model's context is 6"),
    ("cross_entropy", GOOD + 6, {"target_tokens": GOOD}, "token id 10, and the vocabulary has ids from 0 to 9"),
    ("cross_entropy", GOOD - 1, {"target_tokens": GOOD}, "token id -1"),
    ("cross_entropy", GOOD, {}, "needs the inputs target_tokens"),
    ("cross_entropy", GOOD, {"target_tokens": GOOD[:4]}, "must have the shape (5,) or (5, K), not (4,)"),
    ("cross_entropy", GOOD, {"target_tokens": GOOD.astype(np.float32)}, "must be integers, not float32"),
    ("cross_entropy", GOOD, {"target_tokens": GOOD + 100}, "target_tokens have the token id 104"),
    ("cross_entropy", GOOD, {"target_tokens": GOOD, "weights": FLOATS[:4]}, "weights must have the shape"),
    ("cross_entropy", GOOD, {"target_tokens": GOOD, "weights": FLOATS + np.nan}, "it has NaN or infinity"),
    ("cross_entropy", GOOD, {"target_tokens": GOOD, "mask": FLOATS}, "takes no input mask; it takes target_tokens"),
    ("ppo", GOOD, {"target_tokens": GOOD, "logprobs": FLOATS}, "needs the inputs advantages"),
    ("ppo", GOOD, {**POLICY, "advantages": FLOATS - np.inf}, "advantages must be finite"),
    ("ppo", GOOD, {**POLICY, "target_tokens": np.zeros((5, 2), np.int64)}, "must have the shape (5,), not (5, 2)"),
    ("gspo", GOOD, {**POLICY, "sequence_ratio_mask": FLOATS}, "marks no token"),
]


@pytest.mark.parametrize(("loss", "tokens", "inputs", "says"), MISTAKES, ids=[each[-1] for each in MISTAKES])
def test_a_mistake_is_named_with_its_datum(loss: str, tokens: Any, inputs: dict[str, Any], says: str) -> None:
    if loss == "gspo":
        work = ForwardBackward([Datum(tokens, inputs)], loss)
        with pytest.raises(RequestError, match="datum 0") as raised:
            datums.check(work, 10, 6)
    else:
        with pytest.raises(RequestError, match="datum 1") as raised:
            check(loss, tokens, **inputs)
    assert says in str(raised.value)
    assert raised.value.category == "user"


def test_an_empty_batch_is_refused() -> None:
    with pytest.raises(RequestError, match="the batch is empty"):
        datums.check(ForwardBackward([], "cross_entropy"), 10, 6)


def test_several_targets_a_position_are_fine_for_cross_entropy() -> None:
    check("cross_entropy", GOOD, target_tokens=np.zeros((5, 3), np.int64), weights=np.ones((5, 3), np.float32))
