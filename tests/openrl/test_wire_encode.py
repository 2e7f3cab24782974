"""Answers: the SDK reads what is encoded, and gets the arrays that the worker gave."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tinker.proto.response_conv import deserialize_forward_backward_output, deserialize_sample_response

from openrl.wire import encode
from openrl.work import ForwardBackwardResult, OptimResult, SampledSequence, SampleResult, TopK

NAN = float("nan")


def array(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


BATCH = ForwardBackwardResult([array(-1, -2, -3), array(-4), np.zeros((2, 2), np.float32)], {"loss:sum": 1.5})
SEQUENCE = SampledSequence(
    ints(4, 5), array(-0.5, -0.25), "stop", TopK(ints(4, 5)[:, None], array(-0.5, -0.2)[:, None])
)
SAMPLE = SampleResult(
    sequences=[SEQUENCE, SampledSequence(ints(6), array(-1), "length")],
    prompt_logprobs=array(NAN, -0.75),
    topk_prompt_logprobs=TopK(np.array([[9, 9], [1, 2]], np.int32), np.array([[NAN, NAN], [-1, -2]], np.float32)),
    target_prompt_logprobs=np.array([[-3.0, 0.0]], np.float32),
    prompt_alt_tokens=TopK(np.array([[7, 8]], np.int32), np.array([[-1, -2]], np.float32)),
)


def test_the_sdk_reads_a_batch_with_arrays_of_different_lengths_and_shapes() -> None:
    output = deserialize_forward_backward_output(encode.batch_to_proto(BATCH))
    shapes = [one["logprobs"].shape for one in output.loss_fn_outputs]
    assert shapes == [[3], [1], [2, 2]]
    assert output.loss_fn_outputs[0]["logprobs"].to_numpy().tolist() == [-1, -2, -3]
    assert output.metrics == {"loss:sum": 1.5}


def test_a_nan_among_the_metrics_stays_one() -> None:
    broken = ForwardBackwardResult([array(-1)], {"loss:sum": NAN})
    assert np.isnan(deserialize_forward_backward_output(encode.batch_to_proto(broken)).metrics["loss:sum"])
    assert np.isnan(json.loads(encode.batch_to_json(broken))["metrics"]["loss:sum"])
    assert np.isnan(json.loads(encode.step_to_json(OptimResult({"norm:mean": NAN})))["metrics"]["norm:mean"])


def test_the_sdk_reads_a_sample() -> None:
    response = deserialize_sample_response(encode.sample_to_proto(SAMPLE))
    first, second = response.sequences
    assert (list(first.tokens), first.logprobs, first.stop_reason) == ([4, 5], [-0.5, -0.25], "stop")
    assert second.stop_reason == "length"
    assert first.topk_logprobs is not None
    assert first.topk_logprobs[0] == [(4, -0.5)]
    assert response.prompt_logprobs == [None, -0.75]
    assert response.topk_prompt_logprobs == [None, [(1, -1.0), (2, -2.0)]]
    assert response.target_prompt_logprobs is not None
    assert response.target_prompt_logprobs.tolist() == [[-3.0, 0.0]]
    assert response.prompt_alt_tokens is not None
    assert response.prompt_alt_tokens.tokens.tolist() == [[7, 8]]


def test_a_sample_without_extras_has_none() -> None:
    response = deserialize_sample_response(encode.sample_to_proto(SampleResult([SEQUENCE])))
    assert response.prompt_logprobs is None
    assert response.topk_prompt_logprobs is None
    assert response.target_prompt_logprobs is None
    assert response.prompt_alt_tokens is None


def test_older_clients_read_the_same_as_json() -> None:
    batch = json.loads(encode.batch_to_json(BATCH))
    assert batch["loss_fn_outputs"][0]["logprobs"] == {"data": [-1, -2, -3], "dtype": "float32", "shape": [3]}
    sample = json.loads(encode.sample_to_json(SAMPLE))
    assert sample["sequences"][0] == {"tokens": [4, 5], "logprobs": [-0.5, -0.25], "stop_reason": "stop"}
    assert sample["prompt_logprobs"] == [None, -0.75]
    assert sample["topk_prompt_logprobs"] == [None, [[1, -1.0], [2, -2.0]]]


@pytest.mark.parametrize("body", [encode.batch_to_json(BATCH), encode.sample_to_json(SAMPLE)])
def test_no_result_has_a_key_that_a_client_takes_for_something_else(body: bytes) -> None:
    result = json.loads(body)
    assert "error" not in result
    assert "status" not in result
    assert result.get("type") != "try_again"
