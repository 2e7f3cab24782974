"""Drawing tokens: the distribution is the one asked for, and follows from seed and stream alone."""

from __future__ import annotations

from collections import Counter
from itertools import islice

import pytest
import torch

from openrl.sampler.choice import draw, uniforms
from openrl.work import SampleParams

PROBABILITIES = torch.tensor([0.1, 0.4, 0.05, 0.3, 0.15])
GRID = [(place + 0.5) / 2000 for place in range(2000)]


def shares(**params: float) -> dict[int, float]:
    """How often every token is drawn, where the random numbers are spread evenly."""
    logits = PROBABILITIES.log().expand(len(GRID), -1)
    tokens = draw(logits, [SampleParams(1, 0, **params)] * len(GRID), GRID)  # type: ignore[arg-type]
    return {token: count / len(GRID) for token, count in sorted(Counter(tokens).items())}


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({}, {0: 0.1, 1: 0.4, 2: 0.05, 3: 0.3, 4: 0.15}),
        ({"temperature": 0.0}, {1: 1.0}),
        ({"top_k": 1}, {1: 1.0}),
        ({"top_k": 2}, {1: 4 / 7, 3: 3 / 7}),
        ({"top_k": 99}, {0: 0.1, 1: 0.4, 2: 0.05, 3: 0.3, 4: 0.15}),
        ({"top_p": 0.69}, {1: 4 / 7, 3: 3 / 7}),
        ({"top_p": 0.71}, {1: 0.4 / 0.85, 3: 0.3 / 0.85, 4: 0.15 / 0.85}),
        ({"top_p": 1e-9}, {1: 1.0}),
        ({"top_k": 3, "top_p": 0.5}, {1: 4 / 7, 3: 3 / 7}),
        ({"temperature": 1e-30}, {1: 1.0}),
    ],
)
def test_every_token_is_drawn_as_often_as_the_parameters_say(
    params: dict[str, float], expected: dict[int, float]
) -> None:
    assert shares(**params) == pytest.approx(expected, abs=2e-3)


def test_temperature_sharpens_and_flattens() -> None:
    cold = (PROBABILITIES**2 / (PROBABILITIES**2).sum()).tolist()
    assert shares(temperature=0.5) == pytest.approx(dict(enumerate(cold)), abs=2e-3)


def test_a_stream_of_numbers_follows_from_seed_and_stream() -> None:
    streams = [tuple(islice(uniforms(seed, stream), 5)) for seed, stream in [(1, 0), (1, 0), (1, 1), (2, 0), (-1, 0)]]
    assert streams[0] == streams[1]
    assert len(set(streams)) == 4
    assert all(0.0 <= number < 1.0 for stream in streams for number in stream)
