"""Attention as both training and sampling run it: causal over whole sequences, or one new token over cached ones.

Registered with transformers under its own name. Cached tokens lie in chunks of one size: a matrix product over them
would sum in another order for another number of tokens, and so give a row other bits when its neighbours are longer.
Over chunks every product has the same shape, and a chunk with nothing to attend to adds exactly zero.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

NAME = "openrl"
CHUNK = 64  # cached tokens


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Query, key and value are (rows, heads, positions, width), and what comes out (rows, positions, heads, width).

    With a mask there is one new token a row, key and value are (chunks, rows, heads, CHUNK, width), and the mask, true
    where there is something to attend to, is (chunks * rows, 1, 1, CHUNK).
    """
    if attention_mask is None:
        out = scaled_dot_product_attention(query, key, value, is_causal=True, scale=scaling, enable_gqa=True)
        return out.transpose(1, 2).contiguous(), None
    return _over_chunks(
        query, key, value, attention_mask, query.shape[-1] ** -0.5 if scaling is None else scaling
    ), None


def _over_chunks(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor, scaling: float) -> Tensor:
    chunks, rows, groups, _, width = keys.shape
    grouped = query.view(rows, groups, -1, width) * scaling
    scores = torch.matmul(grouped, keys.transpose(-1, -2))
    scores = scores.masked_fill(~mask.view(chunks, rows, 1, 1, CHUNK), -torch.inf)
    shares = torch.exp(scores - scores.amax((0, -1), keepdim=True))
    totals, mixed = shares.sum(-1, keepdim=True), torch.matmul(shares, values)
    total, out = totals[0], mixed[0]
    for chunk in range(1, chunks):
        total, out = total + totals[chunk], out + mixed[chunk]
    return (out / total).reshape(rows, 1, -1, width)


AttentionInterface.register(NAME, attention)
