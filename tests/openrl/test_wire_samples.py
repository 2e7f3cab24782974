"""Sampling requests: defaults, stops and bounds."""

from __future__ import annotations

import json
from typing import Any

import pytest

from openrl.wire import decode, samples
from openrl.wire.limits import Limits
from openrl.wire.refusal import BeyondLimit, Malformed
from openrl.wire.sampling import Sample as SampleMessage
from openrl.work import Sample

LEAST: dict[str, Any] = {"sampling_session_id": "s:sample:0", "prompt": {"chunks": [{"tokens": [1, 2, 3]}]}}


def read(limits: Limits | None = None, **fields: Any) -> Sample:
    body = json.dumps({**LEAST, **fields}).encode()
    return samples.from_json(decode.message(SampleMessage, body), limits or Limits())


def params(**fields: Any) -> dict[str, Any]:
    return {"sampling_params": fields}


def test_everything_but_session_and_prompt_has_a_default() -> None:
    work = read(unknown_field=1)
    assert work.prompt.tolist() == [1, 2, 3]
    assert (work.num_samples, work.prompt_logprobs, work.params.max_tokens) == (1, False, None)
    assert (work.params.temperature, work.params.top_k, work.params.top_p) == (1.0, -1, 1.0)


@pytest.mark.parametrize(
    ("stop", "strings", "tokens"),
    [
        (None, (), None),
        ([], (), ()),
        ("\n", ("\n",), None),
        (["a", "b"], ("a", "b"), None),
        ([7, 8], (), (7, 8)),
    ],
)
def test_stop_is_text_or_tokens_or_nothing(stop: Any, strings: tuple[str, ...], tokens: tuple[int, ...] | None) -> None:
    work = read(**params(stop=stop))
    assert (work.params.stop_strings, work.params.stop_tokens) == (strings, tokens)


def test_sparse_targets_ask_for_nothing_where_nothing_is_listed() -> None:
    targets = {"data": [5], "dtype": "int64", "shape": [2, 2], "sparse_crow_indices": [0, 1, 1]}
    work = read(target_prompt_logprobs={**targets, "sparse_col_indices": [1]})
    assert work.target_prompt_logprobs is not None
    assert work.target_prompt_logprobs.tolist() == [[-1, 5], [-1, -1]]


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"prompt": {"chunks": []}}, "prompt is empty"),
        ({"prompt": {"chunks": [{"tokens": [2**70]}]}}, "prompt"),
        ({"prompt": {"chunks": [{"tokens": [-3]}]}}, "token -3"),
        ({"prompt": {"chunks": [{"type": "image_asset_pointer", "location": "x"}]}}, "image_asset_pointer"),
        ({"num_samples": 0}, "num_samples is 0"),
        (params(max_tokens=0), "max_tokens is 0"),
        (params(temperature=-1), "temperature is -1"),
        (params(top_p=0), "top_p is 0"),
        (params(top_p=1.5), "top_p is 1.5"),
        (params(top_k=-2), "top_k is -2"),
        (params(seed=2**65), "seed is"),
        (params(stop=[""]), "empty string"),
        (params(stop=[1.5]), "stop"),
        ({"prompt_logprobs_last_n": 1}, "needs prompt_logprobs"),
        ({"prompt_logprobs_last_n": 3, "prompt_logprobs": True}, "give 1 to 2"),
        ({"target_prompt_logprobs": {"data": [1], "dtype": "int64"}}, r"shape \(2, K\)"),
        ({"target_prompt_logprobs": {"data": [1, -2], "dtype": "int64", "shape": [2, 1]}}, "holds -2"),
        ({"topk_prompt_logprobs": -1}, "topk_prompt_logprobs is -1"),
    ],
)
def test_what_makes_no_sense_is_malformed(fields: dict[str, Any], complaint: str) -> None:
    with pytest.raises(Malformed, match=complaint):
        read(**fields)


@pytest.mark.parametrize(
    ("limit", "fields"),
    [
        ("num_samples", {"num_samples": 3}),
        ("sample_tokens", params(max_tokens=3)),
        ("sequence_tokens", {}),
        ("top_logprobs", {"topk_sample_logprobs": 3}),
        ("stop_entries", params(stop=[1, 2, 3])),
    ],
)
def test_a_limit_names_itself(limit: str, fields: dict[str, Any]) -> None:
    with pytest.raises(BeyondLimit, match=rf"limits\.{limit}\)"):
        read(Limits(**{limit: 2}), **fields)


def test_what_was_accepted_under_larger_limits_is_still_read_after_a_restart() -> None:
    body = json.dumps({**LEAST, "num_samples": 100_000}).encode()
    work = decode.decode(decode.SAMPLE, body)
    assert isinstance(work, Sample)
    assert work.num_samples == 100_000
