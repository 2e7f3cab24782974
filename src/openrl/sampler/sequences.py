"""A request on its way through the sampler, and the sequences that are being drawn for it."""

from __future__ import annotations

import numpy as np
import torch
from msgspec.structs import replace
from torch import Tensor

from openrl.errors import RequestError
from openrl.models import Base
from openrl.sampler import requests
from openrl.sampler.choice import uniforms
from openrl.sampler.prefill import Prompt
from openrl.sampler.stopping import Stop
from openrl.work import Sample, SampledSequence, SampleResult, TopK


class Request:
    """A request, and what there is of its answer."""

    def __init__(self, sample: Sample, base: Base) -> None:
        requests.check(sample, base)
        self.sample = sample
        self.stop = Stop(sample.params, base)
        self.room = requests.room(sample, base)
        self.about = SampleResult([])
        self.error: RequestError | None = None
        self._sequences: list[SampledSequence | None] = [None] * sample.num_samples

    def complete(self, index: int, sequence: SampledSequence) -> None:
        self._sequences[index] = sequence

    def result(self) -> SampleResult | RequestError:
        sequences = [sequence for sequence in self._sequences if sequence is not None]
        return self.error or replace(self.about, sequences=sequences)


class Sequence:
    """One continuation in the making; `prompt` is what it begins from."""

    def __init__(self, request: Request, index: int, prompt: Prompt) -> None:
        self.request = request
        self.prompt: Prompt | None = prompt
        self.tokens: list[int] = []
        self._index = index
        self._numbers = uniforms(request.sample.params.seed, index)
        self._logprobs: list[float] = []
        self._likeliest: list[tuple[Tensor, Tensor]] = []

    def number(self) -> float:
        """The random number for the next token."""
        return next(self._numbers)

    def add(self, token: int, logprobs: Tensor) -> None:
        """Take a token, drawn from a row of log-probabilities, unless there is no room for it."""
        if len(self.tokens) == self.request.room:
            return
        self.tokens.append(token)
        self._logprobs.append(float(logprobs[token]))
        count = self.request.sample.topk_sample_logprobs
        if count:
            top = torch.topk(logprobs, count)
            self._likeliest.append((top.indices, top.values))

    def ended(self) -> bool:
        """Is it complete? Then its request has it."""
        if self.request.error is not None:
            return True
        stopped = bool(self.tokens) and self.request.stop.at_end_of(self.tokens)
        if not stopped and len(self.tokens) < self.request.room:
            return False
        tokens, logprobs = np.array(self.tokens, np.int32), np.array(self._logprobs, np.float32)
        reason = "stop" if stopped else "length"
        self.request.complete(self._index, SampledSequence(tokens, logprobs, reason, self._topk()))  # type: ignore[arg-type]
        return True

    def _topk(self) -> TopK | None:
        count = self.request.sample.topk_sample_logprobs
        if not count:
            return None
        ids = np.array([ids.numpy() for ids, _ in self._likeliest], np.int32)
        logprobs = np.array([values.numpy() for _, values in self._likeliest], np.float32)
        return TopK(ids.reshape(-1, count), logprobs.reshape(-1, count))
