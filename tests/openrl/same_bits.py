"""Batches that differ from step to step, and what a server's checkpoints hold, to compare to the bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import tinker
import torch
from safetensors.torch import load_file
from tinker import types

from openrl.store import Checkpoint, open_store
from tests.openrl.mortal_server import Mortal

Tensors = dict[str, torch.Tensor]
ADAM = types.AdamParams(learning_rate=0.01, grad_clip_norm=1.0)


def datum(number: int, length: int = 12) -> types.Datum:
    """Always the same for the same number."""
    tokens = np.random.default_rng(number).integers(9, 700, length + 1).tolist()
    inputs: Any = {"target_tokens": tokens[1:], "weights": [1.0] * length}
    return types.Datum(model_input=types.ModelInput.from_ints(tokens[:-1]), loss_fn_inputs=inputs)


def train(training: tinker.TrainingClient, steps: range) -> list[Any]:
    """A batch of its own for every step; all that the client is told."""
    seen: list[Any] = []
    for step in steps:
        trained = training.forward_backward([datum(2 * step), datum(2 * step + 1)], "cross_entropy")
        stepped = training.optim_step(ADAM)
        answer = trained.result(60)
        seen.append((answer.metrics, [out["logprobs"].data for out in answer.loss_fn_outputs]))
        seen.append(stepped.result(60).metrics)
    return seen


def draw(sampling: tinker.SamplingClient, seed: int, count: int = 2) -> list[Any]:
    """Tokens and log-probabilities of samples that depend on the seed."""
    params = types.SamplingParams(max_tokens=12, seed=seed, stop=[])
    answer = sampling.sample(types.ModelInput.from_ints([9 + seed % 100, 33, 41]), count, params).result(60)
    return [(sequence.tokens, sequence.logprobs) for sequence in answer.sequences]


def folder_of(server: Mortal, path: str) -> Path:
    """Where a checkpoint lies."""
    store = open_store(server.data / "openrl.sqlite")
    found = store.get(Checkpoint, path)
    store.close()
    assert found is not None
    return Path(found.folder)


def tensors(server: Mortal, path: str) -> Tensors:
    """All that a checkpoint holds."""
    files = [(file.name, load_file(file)) for file in folder_of(server, path).iterdir()]
    return {f"{name}/{key}": tensor for name, held in files for key, tensor in held.items()}


def assert_same(first: Tensors, second: Tensors) -> None:
    assert first
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
