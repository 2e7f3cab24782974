"""An ordinary training loop in the words that all versions of the SDK know; prints JSON. Run with one on the path."""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from typing import Any

import tinker
from tinker import types

TOKENS = [5, 9, 33, 7, 2, 41]


def result(future: Any) -> Any:
    """Some versions give a future where others give what it brings."""
    return future.result() if hasattr(future, "result") else future


def train(training: Any, steps: int) -> list[float]:
    inputs: Any = {"target_tokens": TOKENS[1:], "weights": [1.0] * (len(TOKENS) - 1)}  # lists, as users write them
    data = [
        types.Datum(
            model_input=types.ModelInput.from_ints(TOKENS[:-1]),
            loss_fn_inputs=inputs,
        )
    ]
    losses = []
    for _ in range(steps):
        trained = training.forward_backward(data, "cross_entropy")
        stepped = training.optim_step(types.AdamParams(learning_rate=0.01))
        losses.append(result(trained).metrics["loss:sum"])
        result(stepped)
    forward = result(training.forward(data, "cross_entropy"))
    return [*losses, forward.metrics["loss:sum"]]


def main() -> None:
    service = tinker.ServiceClient()
    training = result(service.create_lora_training_client(base_model="openrl/tiny", rank=8, seed=3))
    losses = train(training, 4)
    saved = result(training.save_state("middle")).path
    resumed = result(service.create_training_client_from_state_with_optimizer(saved))
    sampling = result(training.save_weights_and_get_sampling_client(name="sampler"))
    params = types.SamplingParams(max_tokens=8, seed=1, temperature=1.0, stop=[])
    sampled = result(sampling.sample(types.ModelInput.from_ints(TOKENS), num_samples=2, sampling_params=params))
    same = train(training, 2) == train(resumed, 2)
    json.dump(
        {
            "version": version("tinker"),
            "losses": losses,
            "resumed_alike": same,
            "sampled": [len(sequence.logprobs) for sequence in sampled.sequences],
        },
        sys.stdout,
    )


main()
