"""Can a request be sampled? Every mistake is a `RequestError` that names the parameter and what would be right."""

from __future__ import annotations

import math

from openrl.datums import check_ids
from openrl.errors import RequestError
from openrl.models import Base
from openrl.work import Sample, SampleParams

MAX_SAMPLES = 4096
MAX_TOPK = 128


def check(sample: Sample, base: Base) -> None:
    """Raise for anything that cannot be sampled."""
    length = len(sample.prompt)
    if sample.prompt.ndim != 1 or length == 0:
        raise RequestError("the prompt is empty: pass at least one token")
    if length > base.context_length:
        raise RequestError(f"the prompt has {length} tokens, and the model's context is {base.context_length}")
    check_ids(sample.prompt, base.vocab_size, "tokens of the prompt")
    _check_count("num_samples", sample.num_samples, 1, MAX_SAMPLES)
    for name in ("topk_prompt_logprobs", "topk_sample_logprobs", "prompt_alt_tokens_k"):
        _check_count(name, getattr(sample, name), 0, min(MAX_TOPK, base.vocab_size))
    _check_params(sample.params, base)
    _check_prompt_questions(sample, base)


def room(sample: Sample, base: Base) -> int:
    """How many tokens may be drawn: what is asked for, as far as the context reaches."""
    left = base.context_length - len(sample.prompt)
    return left if sample.params.max_tokens is None else min(sample.params.max_tokens, left)


def _check_params(params: SampleParams, base: Base) -> None:
    _check_count("max_tokens", params.max_tokens or 0, 0, 2**31)
    if not (params.temperature >= 0.0 and math.isfinite(params.temperature)):
        raise RequestError(f"temperature must be a number of at least 0, not {params.temperature}")
    if not 0.0 < params.top_p <= 1.0:
        raise RequestError(f"top_p must be above 0 and at most 1, not {params.top_p}")
    if params.top_k < -1:
        raise RequestError(f"top_k must be -1 or 0, for all tokens, or their number, not {params.top_k}")
    for token in params.stop_tokens or ():
        if not 0 <= token < base.vocab_size:
            raise RequestError(f"stop has the token id {token}, and the vocabulary has {base.vocab_size}")


def _check_prompt_questions(sample: Sample, base: Base) -> None:
    length, last, targets = len(sample.prompt), sample.prompt_logprobs_last_n, sample.target_prompt_logprobs
    if last is not None:
        if not sample.prompt_logprobs:
            raise RequestError("prompt_logprobs_last_n needs prompt_logprobs")
        _check_count("prompt_logprobs_last_n", last, 1, max(1, length - 1))
    if targets is not None:
        if targets.ndim not in (1, 2) or len(targets) != length - 1:
            raise RequestError(f"target_prompt_logprobs must have the shape ({length - 1}, K), not {targets.shape}")
        check_ids(targets.clip(0), base.vocab_size, "target_prompt_logprobs")


def _check_count(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise RequestError(f"{name} must be from {least} to {most}, not {value}")
