"""The sampling half of a job: a network of its own that follows the trainer's, and replies drawn from it.

Between two calls only `state` lives on the device, and of that only the weights and the generator mean anything.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import torch
from torch import Tensor
from transformers import PreTrainedModel, StaticCache

from examples.three_jobs import weights
from examples.three_jobs.batches import prompt_rows
from examples.three_jobs.jobs import Job
from examples.three_jobs.models import build
from examples.three_jobs.sampling import Rollouts, key_value_pool, pool_tensors, sample
from examples.three_jobs.task import Task


class Sampler:
    model: PreTrainedModel
    pool: StaticCache
    generator: torch.Generator

    def __init__(self, job: Job, seed: int) -> None:
        self.job = job
        self.seed = seed
        self.task = job.task(seed)
        self.version = 0

    def load(self) -> None:
        self.model = build(self.job.family, len(self.task.tokenizer), self.job.width, self.job.layers, self.seed)
        self.model.train(False).requires_grad_(False)
        self.pool = key_value_pool(self.model, self.job.lanes, self.task.prompt_tokens + self.task.reply_tokens)
        self.generator = torch.Generator().manual_seed(self.seed + 1)

    def state(self) -> dict[str, torch.nn.Module | torch.Generator | list[Tensor]]:
        """`kv_pool` may be dropped: it is cleared before it is used."""
        return {"weights": self.model, "draws": self.generator, "kv_pool": pool_tensors(self.pool)}

    def sync(self, path: Path) -> int:
        """Takes over the weights that were published last; answers with their version."""
        published, self.version = weights.read(path)
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                parameter.copy_(published[name])
        return self.version

    def generate(self, step: int) -> Rollouts:
        rng = Random(f"{self.seed}/{self.job.name}/questions/{step}")
        asked = [self.task.question(rng) for _ in range(self.job.questions)]
        questions = tuple(question for question in asked for _ in range(self.job.group))
        tokenizer, width = self.task.tokenizer, self.task.prompt_tokens
        prompts = prompt_rows(tokenizer, [question.prompt for question in questions], width)
        drawn = [self._draw(part) for part in torch.split(prompts, self.job.lanes)]
        replies, logprobs = (torch.cat(parts) for parts in zip(*drawn, strict=True))
        return Rollouts(step, self.version, questions, prompts, replies, logprobs)

    def _draw(self, prompts: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            return sample(
                self.model,
                self.pool,
                prompts,
                tokens=self.task.reply_tokens,
                temperature=self.job.temperature,
                generator=self.generator,
            )


def score(task: Task, rollouts: Rollouts) -> tuple[float, ...]:
    """Rewards, row by row. Runs on the host alone."""
    replies = rollouts.replies.tolist()
    texts = [task.tokenizer.decode(reply) for reply in replies]
    return tuple(task.reward(question, text) for question, text in zip(rollouts.questions, texts, strict=True))
