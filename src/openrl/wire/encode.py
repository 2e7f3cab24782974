"""Results of work to the bytes of an answer: protobuf where the client reads it, JSON where not."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from openrl.wire import tensors
from openrl.wire import tinker_public_pb2 as pb
from openrl.work import Array, ForwardBackwardResult, OptimResult, SampledSequence, SampleResult, TopK

OUTPUT_TYPE = "ArrayRecord"
NOTHING = -99999.0  # the log-probability of a row that has none, of token 0
STOP_REASONS: dict[str, pb.StopReason] = {"stop": pb.STOP_REASON_STOP, "length": pb.STOP_REASON_LENGTH}


def dumps(value: dict[str, Any]) -> bytes:
    """As JSON; a NaN stays one, which the client reads, and is not made a 0 or a null."""
    return json.dumps(value, separators=(",", ":")).encode()


# ---- forward_backward


def batch_to_proto(result: ForwardBackwardResult) -> bytes:
    """One record for each run of datums whose arrays have the same number of columns."""
    records = [record(list(group)) for _, group in groupby(result.logprobs, key=lambda array: array.shape[1:])]
    output = pb.ForwardBackwardOutput(loss_fn_output_type=OUTPUT_TYPE, loss_fn_outputs=records)
    output.metrics.update(result.metrics)
    return output.SerializeToString()


def record(arrays: Sequence[Array]) -> pb.ArrayRecord:
    """The arrays one after another."""
    parts = [np.ascontiguousarray(array, dtype=np.float32).tobytes() for array in arrays]
    offsets = np.cumsum([0, *(len(part) for part in parts)], dtype=np.int64).tobytes()
    trailing = list(arrays[0].shape[1:])
    field = pb.BatchedTensor(data=b"".join(parts), offsets=offsets, dtype=pb.DTYPE_FLOAT32, trailing_shape=trailing)
    return pb.ArrayRecord(type_tag=OUTPUT_TYPE, fields={"logprobs": field}, num_datums=len(arrays))


def batch_to_json(result: ForwardBackwardResult) -> bytes:
    outputs = [{"logprobs": tensors.to_json(array)} for array in result.logprobs]
    return dumps({"loss_fn_output_type": OUTPUT_TYPE, "loss_fn_outputs": outputs, "metrics": result.metrics})


def step_to_json(result: OptimResult) -> bytes:
    return dumps({"metrics": result.metrics, "type": "optim_step"})


# ---- sample


def sample_to_proto(result: SampleResult) -> bytes:
    response = pb.SampleResponse(sequences=[sequence(one) for one in result.sequences])
    if result.prompt_logprobs is not None:
        response.prompt_logprobs = floats(result.prompt_logprobs)
    if result.topk_prompt_logprobs is not None:
        response.topk_prompt_logprobs.CopyFrom(topk(result.topk_prompt_logprobs))
    if result.target_prompt_logprobs is not None:
        response.target_prompt_logprobs.CopyFrom(tensors.to_proto(result.target_prompt_logprobs))
    if result.prompt_alt_tokens is not None:
        tokens, logprobs = result.prompt_alt_tokens.token_ids, result.prompt_alt_tokens.logprobs
        response.prompt_alt_tokens.tokens.CopyFrom(tensors.to_proto(tokens))
        response.prompt_alt_tokens.logprobs.CopyFrom(tensors.to_proto(logprobs))
    return response.SerializeToString()


def sequence(one: SampledSequence) -> pb.SampledSequence:
    return pb.SampledSequence(
        stop_reason=STOP_REASONS[one.stop_reason],
        tokens=integers(one.tokens),
        logprobs=floats(one.logprobs),
        topk_sampled_logprobs=None if one.topk is None else topk(one.topk),
    )


def topk(values: TopK) -> pb.TopkLogprobs:
    """Rows that are NaN become the wire's sign for nothing."""
    ids, logprobs = masked(values)
    length, k = ids.shape
    return pb.TopkLogprobs(token_ids=integers(ids), logprobs=floats(logprobs), k=k, length=length)


def masked(values: TopK) -> tuple[Array, Array]:
    absent = np.isnan(values.logprobs)
    return np.where(absent, 0, values.token_ids), np.where(absent, np.float32(NOTHING), values.logprobs)


def floats(values: Array) -> bytes:
    return np.ascontiguousarray(values, dtype="<f4").tobytes()


def integers(values: Array) -> bytes:
    return np.ascontiguousarray(values, dtype="<i4").tobytes()


def sample_to_json(result: SampleResult) -> bytes:
    """For clients that read no protobuf; those know nothing of targets and alternatives."""
    return dumps(
        {
            "sequences": [json_sequence(one) for one in result.sequences],
            "prompt_logprobs": None if result.prompt_logprobs is None else [number(x) for x in result.prompt_logprobs],
            "topk_prompt_logprobs": None
            if result.topk_prompt_logprobs is None
            else [json_row(*row) for row in rows(result.topk_prompt_logprobs)],
            "type": "sample",
        }
    )


def json_sequence(one: SampledSequence) -> dict[str, Any]:
    return {"tokens": one.tokens.tolist(), "logprobs": one.logprobs.tolist(), "stop_reason": one.stop_reason}


def rows(values: TopK) -> Iterable[tuple[list[int], list[float]]]:
    return zip(values.token_ids.tolist(), values.logprobs.tolist(), strict=True)


def json_row(ids: list[int], logprobs: list[float]) -> list[tuple[int, float]] | None:
    return None if any(x != x for x in logprobs) else list(zip(ids, logprobs, strict=True))


def number(value: Any) -> float | None:
    """NaN stands for a position that has no value, which in JSON is null."""
    return None if np.isnan(value) else float(value)
