"""Sampling of replies: one prefill, then one token a time, over a key-value pool that is allocated once.

The pool's contents mean nothing between two calls: it is cleared before each, so it may be dropped when the sampler
gives way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel, StaticCache

from examples.three_jobs.batches import positions, sayable
from examples.three_jobs.task import Question
from examples.three_jobs.tokenizer import END, PAD


@dataclass(frozen=True, slots=True)
class Rollouts:
    """Sampled replies, row by row; `logprobs` are the model's own, at temperature 1, and 0 where a reply is padding."""

    step: int
    version: int
    questions: tuple[Question, ...]
    prompts: Tensor
    replies: Tensor
    logprobs: Tensor


def key_value_pool(model: PreTrainedModel, rows: int, tokens: int) -> StaticCache:
    config: Any = model.config
    heads = getattr(config, "num_key_value_heads", config.num_attention_heads)
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    pool = StaticCache(config=config, max_cache_len=tokens)
    pool.early_initialization(rows, heads, head_dim, torch.float32, torch.device("cpu"))
    return pool


def pool_tensors(pool: StaticCache) -> list[Tensor]:
    layers: list[Any] = list(pool.layers)
    return [tensor for layer in layers for tensor in (layer.keys, layer.values)]


def sample(
    model: PreTrainedModel,
    pool: StaticCache,
    prompts: Tensor,
    *,
    tokens: int,
    temperature: float,
    generator: torch.Generator,
) -> tuple[Tensor, Tensor]:
    """Replies and their log-probabilities, both (rows, tokens); a reply ends with `END` or when it is full."""
    pool.reset()  # type: ignore[no-untyped-call]
    rows, width = prompts.shape
    replies = torch.full((rows, tokens), PAD)
    logprobs = torch.zeros((rows, tokens))
    mask = torch.cat([(prompts != PAD).long(), torch.ones((rows, tokens), dtype=torch.long)], dim=1)
    places = positions(mask)
    ended = torch.zeros(rows, dtype=torch.bool)
    ids, begin = prompts, 0
    for column in range(tokens):
        end = width + column
        logits = next_logits(model, pool, ids, mask[:, :end], places[:, begin:end])
        ids, begin = drawn(logits, temperature, generator), end
        said = torch.log_softmax(logits, dim=-1).gather(1, ids)
        replies[:, column] = torch.where(ended, PAD, ids[:, 0])
        logprobs[:, column] = torch.where(ended, 0.0, said[:, 0])
        ended |= ids[:, 0] == END
        if bool(ended.all()):
            break
    return replies, logprobs


def next_logits(model: PreTrainedModel, pool: StaticCache, ids: Tensor, mask: Tensor, places: Tensor) -> Tensor:
    output = model(
        input_ids=ids, attention_mask=mask, position_ids=places, cache=pool, use_cache=True, logits_to_keep=1
    )
    return sayable(output.logits[:, -1])


def drawn(logits: Tensor, temperature: float, generator: torch.Generator) -> Tensor:
    return torch.multinomial(torch.softmax(logits / temperature, dim=-1), 1, generator=generator)
