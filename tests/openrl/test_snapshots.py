"""Snapshots in memory: those used last stay, up to a number of bytes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from openrl import checkpoints
from openrl.models import Bases
from openrl.snapshots import Snapshots
from openrl.weights import of_spec
from openrl.work import ModelSpec
from tests.openrl.small_models import write_base


@pytest.fixture
def bases(tmp_path: Path) -> Bases:
    return Bases({"small": str(write_base(tmp_path / "small"))}, {"alias": "small"}, tmp_path)


def write(bases: Bases, folder: Path, seed: int) -> int:
    """Publish an adapter; what it takes in memory."""
    spec = ModelSpec("small", rank=4, seed=seed)
    weights = of_spec(bases.get("small"), spec)
    checkpoints.save_weights(weights, spec, folder)
    return weights.parameters.size_bytes


def test_what_was_used_longest_ago_makes_room(bases: Bases, tmp_path: Path) -> None:
    a, b, c = (str(tmp_path / name) for name in "abc")
    size = max(write(bases, Path(folder), seed) for seed, folder in enumerate((a, b, c)))
    snapshots = Snapshots(bases, max_bytes=2 * size)
    first, second = snapshots.get("small", a), snapshots.get("alias", b)
    assert snapshots.get("small", a) is first
    snapshots.get("small", c)
    assert snapshots.get("small", a) is first
    again = snapshots.get("small", b)
    assert again is not second
    assert torch.equal(again.parameters.flat, second.parameters.flat)


def test_what_is_held_on_writing_is_a_copy_equal_to_what_is_read(bases: Bases, tmp_path: Path) -> None:
    spec = ModelSpec("small", rank=4, seed=1)
    weights = of_spec(bases.get("small"), spec)
    checkpoints.save_weights(weights, spec, tmp_path / "a")
    holding, reading = Snapshots(bases, 1 << 20), Snapshots(bases, 1 << 20)
    holding.hold(weights, spec, tmp_path / "a")
    weights.parameters.flat.zero_()
    held, read = (snapshots.get("small", str(tmp_path / "a")) for snapshots in (holding, reading))
    assert torch.equal(held.parameters.flat, read.parameters.flat)
    assert held.parameters.flat.any()
