"""Learning by imitation: the mean negative log-likelihood of the teacher's reply tokens."""

from __future__ import annotations

from torch import Tensor

from examples.three_jobs.tokenizer import PAD


def imitation_loss(logprobs: Tensor, replies: Tensor) -> Tensor:
    shown = (replies != PAD).to(logprobs.dtype)
    return -(logprobs * shown).sum() / shown.sum()
