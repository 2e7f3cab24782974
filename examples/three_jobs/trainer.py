"""The training half of a job: a network, its optimizer, and the updates by imitation and by reward.

It waits for nobody and looks at no clock. Everything that an update depends on is its arguments, what it draws from
seeds by the step's number, and what `state` names; so it may be parked between any two calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random

import torch
from torch import Tensor
from transformers import PreTrainedModel

from examples.three_jobs import weights
from examples.three_jobs.batches import demonstration_rows, reply_logprobs
from examples.three_jobs.jobs import Job
from examples.three_jobs.models import build
from examples.three_jobs.policy_gradient import advantages, most_telling, policy_loss
from examples.three_jobs.sampling import Rollouts
from examples.three_jobs.supervised import imitation_loss


@dataclass(frozen=True, slots=True)
class Experience:
    """What was sampled, and what it earned, row by row."""

    rollouts: Rollouts
    rewards: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Metrics:
    """Means over a phase's updates."""

    loss: float
    grad_norm: float
    updates: int


class Trainer:
    model: PreTrainedModel
    optimizer: torch.optim.AdamW
    generator: torch.Generator

    def __init__(self, job: Job, seed: int) -> None:
        self.job = job
        self.seed = seed
        self.task = job.task(seed)
        self.version = 0

    def load(self) -> None:
        self.model = build(self.job.family, len(self.task.tokenizer), self.job.width, self.job.layers, self.seed)
        self.model.train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=self.job.imitation_rate)
        self.generator = torch.Generator().manual_seed(self.seed)

    def state(self) -> dict[str, torch.nn.Module | torch.optim.Optimizer | torch.Generator]:
        """All that lives on the device between two calls; gradients are the network's."""
        return {"weights": self.model, "optimizer": self.optimizer, "order": self.generator}

    def imitate(self, step: int) -> Metrics:
        """Supervised updates on demonstrations that nobody has seen before."""
        rng = Random(f"{self.seed}/{self.job.name}/demonstrations/{step}")
        seen = []
        for _ in range(self.job.imitation_updates):
            shown = [self.task.demonstration(rng) for _ in range(self.job.imitation_rows)]
            rows = demonstration_rows(self.task.tokenizer, shown, self.task.prompt_tokens, self.task.reply_tokens)
            logprobs = reply_logprobs(self.model, *rows)
            seen.append(self._update(imitation_loss(logprobs, rows[1]), self.job.imitation_rate))
        return mean(seen)

    def reinforce(self, experience: Experience) -> Metrics:
        """Updates on the groups that tell most, in an order of the trainer's own drawing."""
        rewards, rollouts = torch.tensor(experience.rewards), experience.rollouts
        gains = advantages(rewards, self.job.group)
        rows = most_telling(rewards, self.job.group, self.job.keep_groups)
        order = rows[torch.randperm(len(rows), generator=self.generator)]
        return mean([self._learn(rollouts, gains, part) for part in order.chunk(self.job.policy_updates)])

    def publish(self, path: Path) -> int:
        """Weights for the sampler; answers with their version."""
        self.version += 1
        weights.write(path, dict(self.model.named_parameters()), self.version)
        return self.version

    def tensors(self) -> dict[str, Tensor]:
        """Parameters and optimizer state by name: what a checkpoint holds and a fingerprint is taken of."""
        named = {f"weights.{name}": parameter.detach() for name, parameter in self.model.named_parameters()}
        for name, parameter in self.model.named_parameters():
            for key, value in self.optimizer.state.get(parameter, {}).items():
                named[f"optimizer.{name}.{key}"] = value
        return named

    def _learn(self, rollouts: Rollouts, gains: Tensor, rows: Tensor) -> tuple[float, float]:
        replies = rollouts.replies[rows]
        logprobs = reply_logprobs(self.model, rollouts.prompts[rows], replies)
        loss = policy_loss(logprobs, rollouts.logprobs[rows], gains[rows], replies)
        return self._update(loss, self.job.policy_rate)

    def _update(self, loss: Tensor, rate: float) -> tuple[float, float]:
        """One step of the optimizer. Gradients keep their memory, so that the state's size stands still."""
        self.optimizer.zero_grad(set_to_none=False)
        loss.backward()  # type: ignore[no-untyped-call]
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.param_groups[0]["lr"] = rate
        self.optimizer.step()
        return loss.item(), norm.item()


def mean(seen: list[tuple[float, float]]) -> Metrics:
    losses, norms = zip(*seen, strict=True)
    return Metrics(sum(losses) / len(seen), sum(norms) / len(seen), len(seen))


def save_checkpoint(path: Path, tensors: Mapping[str, Tensor], step: int) -> None:
    """From CPU tensors, such as a parked job's host copy: no device is touched."""
    weights.write(path, {name: tensor.clone() for name, tensor in tensors.items()}, step)
