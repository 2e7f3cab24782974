"""Micro-batches: all data once, within the budget, padded at the end, with flat targets in order."""

from __future__ import annotations

import numpy as np
import pytest

from openrl.batches import batch, padded, split
from openrl.work import Datum
from tests.openrl.small_models import data

LENGTHS = (9, 5, 33, 14, 1, 200, 16)


@pytest.mark.parametrize("budget", [1, 64, 10_000])
def test_all_data_are_in_one_micro_batch_each_within_the_budget(budget: int) -> None:
    parts = list(split(data(1, LENGTHS), budget))
    assert sorted(index for part in parts for index in part) == list(range(len(LENGTHS)))
    for part in parts:
        assert len(part) == 1 or len(part) * padded(max(LENGTHS[index] for index in part)) <= budget


@pytest.mark.parametrize(("length", "filled"), [(1, 16), (16, 16), (17, 32), (128, 128), (129, 192), (192, 192)])
def test_lengths_are_filled_up_to_few(length: int, filled: int) -> None:
    assert padded(length) == filled


def test_targets_point_at_the_states_that_predict_them() -> None:
    several = Datum(np.array([7, 8]), {"target_tokens": np.array([[1, 2, 3], [4, 5, 6]])})
    single = Datum(np.array([9, 9, 9]), {"target_tokens": np.array([5, 6, 7]), "weights": np.array([2.0, 3.0, 4.0])})
    part = batch([several, single], [0, 1], ["weights"], {"weights": 1.0})
    assert part.tokens.shape == (2, 16)
    assert part.used is not None
    assert part.tokens.flatten()[part.used].tolist() == [7, 8, 9, 9, 9]
    assert part.targets.tolist() == [1, 2, 3, 4, 5, 6, 5, 6, 7]
    assert part.positions.tolist() == [0, 0, 0, 1, 1, 1, 2, 3, 4]
    assert part.inputs["weights"].tolist() == [1.0] * 6 + [2.0, 3.0, 4.0]
    assert part.lengths == [6, 3]


def test_without_padding_nothing_is_picked_out() -> None:
    assert batch(data(1, (16, 16)), [0, 1], [], {}).used is None
