"""Learning by reward: groups of replies to one prompt are judged against each other (GRPO).

A reply's advantage is how far its reward stands above its group's mean, in standard deviations. A group whose rewards
are all equal teaches nothing; the trainer takes a fixed number of groups, those of the widest spread, so that a step
is the same amount of work whatever was sampled.
"""

from __future__ import annotations

import torch
from torch import Tensor

from examples.three_jobs.tokenizer import PAD


def advantages(rewards: Tensor, group: int) -> Tensor:
    """`rewards` lists the groups one after another; the answer has the same order."""
    grouped = rewards.view(-1, group)
    centred = grouped - grouped.mean(dim=1, keepdim=True)
    return (centred / (grouped.std(dim=1, keepdim=True) + 1e-4)).flatten()


def most_telling(rewards: Tensor, group: int, keep: int) -> Tensor:
    """Rows of the `keep` groups whose rewards differ most; of equals, the earlier."""
    spread = rewards.view(-1, group).var(dim=1)
    chosen = torch.sort(spread, descending=True, stable=True).indices[:keep].sort().values
    return (chosen.unsqueeze(1) * group + torch.arange(group)).flatten()


def policy_loss(logprobs: Tensor, sampled: Tensor, gains: Tensor, replies: Tensor, clip: float = 0.2) -> Tensor:
    """The clipped surrogate of PPO. `sampled` are the log-probabilities at sampling time."""
    said = (replies != PAD).to(logprobs.dtype)
    ratio = torch.exp((logprobs - sampled) * said)
    gain = gains.unsqueeze(1)
    surrogate = torch.minimum(ratio * gain, ratio.clamp(1 - clip, 1 + clip) * gain)
    return -(surrogate * said).sum() / said.sum()
