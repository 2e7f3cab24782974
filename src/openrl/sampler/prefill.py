"""Running prompts through the network: their keys and values, the scores after them, and what is asked about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from openrl.network import Network
from openrl.sampler import blocks
from openrl.sampler.choice import draw, uniforms
from openrl.sampler.slots import KeyValues
from openrl.work import Array, Sample, SampleResult, TopK

NO_TOKEN, NO_LOGPROB = 0, -99999.0  # in a row of likeliest tokens where there are none
ALTERNATIVES = 2**63  # the stream of random numbers of alternative tokens; samples have those from 0


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt that has been run. `about` has no sequences yet."""

    key_values: KeyValues
    logits: Tensor
    about: SampleResult


class _Recorder:
    """Takes note of keys and values, layer by layer."""

    def __init__(self) -> None:
        self.layers: KeyValues = []

    def update(self, key: Tensor, value: Tensor, layer: int, *args: object, **kwargs: object) -> tuple[Tensor, Tensor]:
        self.layers.append((key, value))
        return key, value


def prefill(network: Network, samples: Sequence[Sample]) -> list[Prompt]:
    """Run prompts of one padded width, as many as fit in one block."""
    width = blocks.prefill_width(max(len(sample.prompt) for sample in samples))
    tokens = np.zeros((blocks.prefill_rows(width), width), np.int64)
    for row, sample in zip(tokens, samples, strict=False):
        row[: len(sample.prompt)] = sample.prompt
    recorder = _Recorder()
    hidden = network.hidden(torch.from_numpy(tokens), cache=recorder)
    last = hidden[range(len(samples)), [len(sample.prompt) - 1 for sample in samples]]
    scores = blocks.logits(network, last)
    return [
        Prompt(
            key_values=[(keys[row].clone(), values[row].clone()) for keys, values in recorder.layers],
            logits=scores[row],
            about=_about(network, sample, hidden[row, : len(sample.prompt) - 1]),
        )
        for row, sample in enumerate(samples)
    ]


def _about(network: Network, sample: Sample, hidden: Tensor) -> SampleResult:
    """What is asked about the prompt's tokens after the first; hidden states are those that predict them."""
    wanted = sample.prompt_logprobs or sample.topk_prompt_logprobs or sample.prompt_alt_tokens_k
    if not wanted and sample.target_prompt_logprobs is None:
        return SampleResult([])
    scored = [_Scored(sample, start) for start in range(0, len(hidden), blocks.ROWS)]
    for part in scored:
        part.score(blocks.logits(network, hidden[part.start : part.start + blocks.ROWS]))
    return SampleResult(
        sequences=[],
        prompt_logprobs=_prompt_logprobs(sample, scored) if sample.prompt_logprobs else None,
        topk_prompt_logprobs=_topk(sample, scored) if sample.topk_prompt_logprobs else None,
        target_prompt_logprobs=_targets(sample, scored) if sample.target_prompt_logprobs is not None else None,
        prompt_alt_tokens=_alternatives(sample, scored) if sample.prompt_alt_tokens_k else None,
    )


class _Scored:
    """What is asked of one block of a prompt's tokens: those that follow `start` and its successors."""

    def __init__(self, sample: Sample, start: int) -> None:
        self.sample = sample
        self.start = start

    def score(self, logits: Tensor) -> None:
        sample, rows = self.sample, slice(self.start, self.start + len(logits))
        logprobs = torch.log_softmax(logits, -1)
        self.logprobs = _at(logprobs, sample.prompt[1:][rows, None])[:, 0]
        self.likeliest = torch.topk(logprobs, sample.topk_prompt_logprobs)
        if sample.target_prompt_logprobs is not None:
            targets = sample.target_prompt_logprobs.reshape(len(sample.prompt) - 1, -1)[rows]
            self.targets = np.where(targets < 0, np.float32(0), _at(logprobs, targets.clip(0)))
        self.alternatives = self._draw(logits, sample.prompt_alt_tokens_k)
        self.of_alternatives = _at(logprobs, self.alternatives)

    def _draw(self, logits: Tensor, count: int) -> Array:
        """The numbers for a position are its own, so that they do not depend on how positions fall into blocks."""
        drawn = np.zeros((len(logits), count), np.int64)
        for row, scores in enumerate(logits if count else ()):
            numbers = uniforms(self.sample.params.seed, ALTERNATIVES + self.start + row)
            each = [next(numbers) for _ in range(count)]
            drawn[row] = draw(scores.expand(count, -1), [self.sample.params] * count, each)
        return drawn


def _at(logprobs: Tensor, tokens: Array) -> Array:
    return logprobs.gather(1, torch.from_numpy(np.ascontiguousarray(tokens, np.int64))).numpy()


def _unscored(sample: Sample) -> int:
    """How many tokens at the beginning of the prompt get no log-probability."""
    last = sample.prompt_logprobs_last_n
    return max(1, len(sample.prompt) - last) if last is not None else 1


def _prompt_logprobs(sample: Sample, scored: Sequence[_Scored]) -> Array:
    out = np.concatenate([np.full(1, np.nan, np.float32), *(part.logprobs for part in scored)])
    out[: _unscored(sample)] = np.nan
    return out


def _topk(sample: Sample, scored: Sequence[_Scored]) -> TopK:
    shape = (len(sample.prompt), sample.topk_prompt_logprobs)
    ids, logprobs = np.full(shape, NO_TOKEN, np.int32), np.full(shape, NO_LOGPROB, np.float32)
    for part in scored:
        rows = slice(part.start + 1, part.start + 1 + len(part.likeliest.indices))
        ids[rows], logprobs[rows] = part.likeliest.indices.numpy(), part.likeliest.values.numpy()
    ids[: _unscored(sample)], logprobs[: _unscored(sample)] = NO_TOKEN, NO_LOGPROB
    return TopK(ids, logprobs)


def _targets(sample: Sample, scored: Sequence[_Scored]) -> Array:
    assert sample.target_prompt_logprobs is not None
    parts = [part.targets for part in scored] or [np.zeros(0)]
    return np.concatenate(parts).astype(np.float32).reshape(sample.target_prompt_logprobs.shape)


def _alternatives(sample: Sample, scored: Sequence[_Scored]) -> TopK:
    none = np.zeros((0, sample.prompt_alt_tokens_k))
    ids = np.concatenate([none, *(part.alternatives for part in scored)]).astype(np.int32)
    return TopK(ids, np.concatenate([none, *(part.of_alternatives for part in scored)]).astype(np.float32))
