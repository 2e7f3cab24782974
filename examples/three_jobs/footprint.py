"""What a job's processes need of their devices' memory, known before anything is allocated."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from transformers import PreTrainedModel

from examples.three_jobs.jobs import Job
from examples.three_jobs.models import FAMILIES
from examples.three_jobs.process import TRAINERS

FLOAT = 4
TRAINED = 4 * FLOAT  # a parameter's weight, gradient and two moments
SPARE = 1 << 16  # the optimizer counts its steps, buffers hold frequencies


class Footprint(NamedTuple):
    """Bytes that stay between turns, and bytes that are there during one besides: a sampler's key-value pool."""

    state: int
    turn: int


def footprint(job: Job, group: str) -> Footprint:
    with torch.device("meta"):
        model = FAMILIES[job.family](len(job.task(0).tokenizer), job.width, job.layers)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    if group == TRAINERS:
        return Footprint(parameters * TRAINED + SPARE, 0)
    return Footprint(parameters * FLOAT + SPARE, key_value_bytes(job, model))


def key_value_bytes(job: Job, model: PreTrainedModel) -> int:
    """A key and a value for every token of every row that is sampled at a time, in every layer and head."""
    config: Any = model.config
    heads = getattr(config, "num_key_value_heads", config.num_attention_heads)
    task = job.task(0)
    tokens = job.lanes * (task.prompt_tokens + task.reply_tokens)
    width: int = heads * (config.hidden_size // config.num_attention_heads)
    return 2 * FLOAT * job.layers * width * tokens
