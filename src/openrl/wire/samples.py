"""Sampling requests to work."""

from __future__ import annotations

import math

from openrl.wire import tensors
from openrl.wire.batches import check_tokens, json_tokens
from openrl.wire.limits import Limits
from openrl.wire.refusal import Malformed, beyond
from openrl.wire.sampling import Sample as SampleMessage
from openrl.wire.sampling import SamplingParams
from openrl.wire.training import JsonTensor
from openrl.work import Sample, SampleParams, Tokens


def from_json(message: SampleMessage, limits: Limits) -> Sample:
    """The work that the message asks for; what it is drawn from is filled in by who knows the sampling session.

    Raises:
        Malformed: what it says makes no sense, whatever the model.
        BeyondLimit: it says too much.
    """
    prompt = json_tokens("prompt", message.prompt)
    check_tokens("prompt", prompt, limits)
    check_counts(message, limits)
    return Sample(
        base_model="",
        weights="",
        prompt=prompt,
        num_samples=message.num_samples,
        params=params(message.sampling_params, limits),
        prompt_logprobs=bool(message.prompt_logprobs),
        topk_prompt_logprobs=message.topk_prompt_logprobs,
        topk_sample_logprobs=message.topk_sample_logprobs,
        prompt_logprobs_last_n=last_n(message, len(prompt)),
        target_prompt_logprobs=targets(message.target_prompt_logprobs, len(prompt), limits),
        prompt_alt_tokens_k=message.prompt_alt_tokens_k,
    )


def check_counts(message: SampleMessage, limits: Limits) -> None:
    """Every number of things is within its limit, and none is negative."""
    bounds = [
        ("num_samples", message.num_samples, 1, "num_samples", limits.num_samples),
        ("topk_prompt_logprobs", message.topk_prompt_logprobs, 0, "top_logprobs", limits.top_logprobs),
        ("topk_sample_logprobs", message.topk_sample_logprobs, 0, "top_logprobs", limits.top_logprobs),
        ("prompt_alt_tokens_k", message.prompt_alt_tokens_k, 0, "top_logprobs", limits.top_logprobs),
    ]
    for name, value, least, limit, most in bounds:
        within(name, value, least, limit, most)


def within(name: str, value: int, least: int, limit: str, most: int) -> None:
    if value < least:
        raise Malformed(f"{name} is {value}; the least is {least}")
    if value > most:
        raise beyond(name, value, limit, most, "ask for fewer")


def params(message: SamplingParams, limits: Limits) -> SampleParams:
    """How to draw, if the numbers are ones that can be drawn with."""
    if message.max_tokens is not None:
        within("max_tokens", message.max_tokens, 1, "sample_tokens", limits.sample_tokens)
    if not 0 <= message.temperature < math.inf:
        raise Malformed(f"temperature is {message.temperature}; give 0, for the likeliest token, or more")
    if not 0 < message.top_p <= 1:
        raise Malformed(f"top_p is {message.top_p}; give more than 0 and at most 1")
    if message.top_k < -1:
        raise Malformed(f"top_k is {message.top_k}; give 1 or more, or -1 for all tokens")
    strings, tokens = stops(message.stop, limits)
    return SampleParams(
        max_tokens=message.max_tokens,
        seed=seed(message.seed),
        temperature=message.temperature,
        top_k=message.top_k or -1,
        top_p=message.top_p,
        stop_strings=strings,
        stop_tokens=tokens,
    )


def seed(asked: int | None) -> int:
    """One of 63 bits; 0 where none was given."""
    if asked is not None and not -(2**63) <= asked < 2**64:
        raise Malformed(f"seed is {asked}; give an integer of 64 bits")
    return (asked or 0) % 2**63


def stops(asked: str | list[int] | list[str] | None, limits: Limits) -> tuple[tuple[str, ...], tuple[int, ...] | None]:
    """Strings to stop at and tokens to stop at. With strings, the model's end of text stops as well."""
    if asked is None:
        return (), None
    entries = [asked] if isinstance(asked, str) else asked
    within("the number of stop entries", len(entries), 0, "stop_entries", limits.stop_entries)
    if "" in entries:
        raise Malformed("stop holds an empty string, which is found everywhere: leave it out")
    strings = tuple(entry for entry in entries if isinstance(entry, str))
    tokens = tuple(entry for entry in entries if isinstance(entry, int))
    return strings, None if strings else tokens


def last_n(message: SampleMessage, length: int) -> int | None:
    """How many of the prompt's last tokens are scored; None is all of them."""
    asked = message.prompt_logprobs_last_n
    if asked is None:
        return None
    if not message.prompt_logprobs:
        raise Malformed("prompt_logprobs_last_n needs prompt_logprobs to be true")
    if not 1 <= asked < length:
        raise Malformed(f"prompt_logprobs_last_n is {asked}; with a prompt of {length} tokens give 1 to {length - 1}")
    return asked


def targets(message: JsonTensor | None, length: int, limits: Limits) -> Tokens | None:
    """Ids to score at each prompt position after the first, -1 where none is asked for."""
    if message is None:
        return None
    name = "target_prompt_logprobs"
    tokens: Tokens = tensors.from_json(name, message, unlisted=-1)
    if tokens.dtype.kind != "i" or tokens.ndim != 2 or len(tokens) != length - 1:
        raise Malformed(f"{name} is {tokens.dtype} of shape {tokens.shape}; give int64 of shape ({length - 1}, K)")
    within(f"{name}'s number of columns", tokens.shape[1], 1, "top_logprobs", limits.top_logprobs)
    if tokens.min() < -1:
        raise Malformed(f"{name} holds {tokens.min()}; give token ids, or -1 for none")
    return tokens
