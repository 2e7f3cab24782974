"""The log-probabilities of given tokens, and their gradient, with one pass over the scores for both."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class _TokenLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, positions: Tensor, tokens: Tensor) -> Tensor:
        highest, where = logits.max(-1)
        shares = torch.softmax(logits, -1)
        # The likeliest token has a share of at least one over their number, whose logarithm is accurate.
        normalisers = highest - shares.gather(1, where[:, None])[:, 0].log()
        ctx.save_for_backward(shares, positions, tokens)
        return logits[positions, tokens] - normalisers[positions]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        shares, positions, tokens = ctx.saved_tensors
        totals = shares.new_zeros(len(shares)).index_add_(0, positions, gradients[0])
        out = shares * -totals[:, None]
        return out.index_put_((positions, tokens), gradients[0], accumulate=True), None, None


def token_logprobs(logits: Tensor, positions: Tensor, tokens: Tensor) -> Tensor:
    """For every pair of a position and a token, the token's log-probability in that position's row of logits."""
    chosen: Tensor = _TokenLogprobs.apply(logits, positions, tokens)  # type: ignore[no-untyped-call]
    return chosen
