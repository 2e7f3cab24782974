"""Which token comes next: a draw from one row of scores with one uniform number, as the parameters have it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from openrl.work import SampleParams


def uniforms(seed: int, stream: int) -> Iterator[float]:
    """Numbers from [0, 1) that follow from a seed and the number of a stream alone."""
    generator = np.random.Generator(np.random.Philox(key=np.array([seed % 2**64, stream], np.uint64)))
    while True:
        yield float(generator.random())


def draw(logits: Tensor, params: Sequence[SampleParams], numbers: Sequence[float]) -> list[int]:
    """One token for every row of scores (n, vocabulary)."""
    temperatures = torch.tensor([one.temperature or 1.0 for one in params])
    scaled = (logits - logits.amax(-1, keepdim=True)) / temperatures[:, None]
    tokens: list[int] = _invert(torch.softmax(scaled, -1), torch.tensor(numbers, dtype=torch.float64)).tolist()
    for row, one in enumerate(params):
        if one.temperature == 0.0 or one.top_k == 1:
            tokens[row] = int(logits[row].argmax())
        elif one.top_k > 0 or one.top_p < 1.0:
            tokens[row] = _draw_filtered(scaled[row], one, numbers[row])
    return tokens


def _draw_filtered(scaled: Tensor, params: SampleParams, number: float) -> int:
    """The `top_k` likeliest, and of these the fewest that hold `top_p` of their probability."""
    count = min(params.top_k, len(scaled)) if params.top_k > 0 else len(scaled)
    kept = torch.topk(scaled, count)
    probabilities = torch.softmax(kept.values, -1)
    before = torch.cumsum(probabilities, -1, dtype=torch.float64) - probabilities
    probabilities = torch.where(before < params.top_p, probabilities, 0.0)
    probabilities[0] = probabilities[0].clamp(min=torch.finfo(torch.float32).tiny)
    place = _invert(probabilities[None], torch.tensor([number], dtype=torch.float64))
    return int(kept.indices[place[0]])


def _invert(probabilities: Tensor, numbers: Tensor) -> Tensor:
    """The place in every row where the sum of probabilities first exceeds that share of the whole."""
    sums = torch.cumsum(probabilities, -1, dtype=torch.float64)
    places = torch.searchsorted(sums, (numbers * sums[:, -1])[:, None], right=True)[:, 0]
    return places.clamp(max=probabilities.shape[-1] - 1)
