"""Text as rectangles of token ids, and the log-probabilities that a model gives them.

Prompts are padded on the left and replies on the right, so that a row is `pad.. prompt reply end pad..` and all
replies begin in the same column. The sampler and the trainer use the same layout.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import PreTrainedModel

from examples.three_jobs.task import Demonstration
from examples.three_jobs.tokenizer import END, PAD, Tokenizer


def prompt_rows(tokenizer: Tokenizer, prompts: Sequence[str], width: int) -> Tensor:
    rows = [fitted(tokenizer.encode(prompt), width) for prompt in prompts]
    return torch.tensor([[PAD] * (width - len(row)) + row for row in rows])


def reply_rows(tokenizer: Tokenizer, replies: Sequence[str], width: int) -> Tensor:
    rows = [fitted([*tokenizer.encode(reply), END], width) for reply in replies]
    return torch.tensor([row + [PAD] * (width - len(row)) for row in rows])


def fitted(row: list[int], width: int) -> list[int]:
    if len(row) > width:
        raise ValueError(f"a text of {len(row)} tokens does not fit into {width}; widen the task's prompt or reply")
    return row


def demonstration_rows(
    tokenizer: Tokenizer, shown: Sequence[Demonstration], prompt_width: int, reply_width: int
) -> tuple[Tensor, Tensor]:
    prompts = prompt_rows(tokenizer, [one.prompt for one in shown], prompt_width)
    return prompts, reply_rows(tokenizer, [one.reply for one in shown], reply_width)


def positions(mask: Tensor) -> Tensor:
    """Padding does not count: the first real token of a row stands at 0."""
    return (mask.cumsum(dim=1) - 1).clamp(min=0)


def reply_logprobs(model: PreTrainedModel, prompts: Tensor, replies: Tensor) -> Tensor:
    """Log-probability of every reply token given all that stands before it; meaningless where a reply is padding."""
    ids = torch.cat([prompts, replies], dim=1)
    mask = (ids != PAD).long()
    output = model(
        input_ids=ids,
        attention_mask=mask,
        position_ids=positions(mask),
        use_cache=False,
        logits_to_keep=replies.shape[1] + 1,
    )
    logprobs = torch.log_softmax(sayable(output.logits[:, :-1]), dim=-1)
    return logprobs.gather(2, replies.unsqueeze(2)).squeeze(2)


def sayable(logits: Tensor) -> Tensor:
    """Padding is no word: nobody may say it. (Finite, for what is infinite stays so when it is masked out.)"""
    outside = torch.zeros(logits.shape[-1], dtype=torch.bool)
    outside[PAD] = True
    return logits.masked_fill(outside, -1e9)
