"""Batches to train on, to work: from protobuf, as clients since 0.25 send them, and from JSON, as older ones do."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from google.protobuf.message import DecodeError

from openrl.wire import tensors
from openrl.wire import tinker_public_pb2 as pb
from openrl.wire.limits import Limits
from openrl.wire.refusal import Malformed, beyond
from openrl.wire.training import BatchInput, JsonDatum, JsonInput
from openrl.work import Array, Datum, ForwardBackward, Tokens

CELL_BYTES = 8
INT32 = np.dtype("<i4")
PREFIX = re.compile(rb"\x0a(?P<size>[\x01-\x7f])(?P<model>[^\x10]+)\x10[\x80-\xff]{0,4}[\x00-\x7f]", re.DOTALL)


def parse(body: bytes) -> pb.ForwardBackwardRequest:
    """The message, its contents unread."""
    try:
        return pb.ForwardBackwardRequest.FromString(body)
    except DecodeError as error:
        raise Malformed(f"the body is not a ForwardBackwardRequest in protobuf: {error}") from error


def parse_prefix(body: bytes) -> tuple[str, int] | None:
    """Whose request it is and its number, from its first bytes: clients write fields in the order of their numbers."""
    found = PREFIX.match(body)
    if found is None or len(found["model"]) != found["size"][0]:
        return None
    message = parse(found[0])
    return message.model_id, message.seq_id


def from_proto(message: pb.ForwardBackwardRequest, limits: Limits) -> ForwardBackward:
    """The work that the message asks for.

    Raises:
        Malformed: what it says makes no sense, whatever the model.
        BeyondLimit: it says too much.
    """
    check_count(len(message.data), limits)
    check_spread((tensor.shape for datum in message.data for tensor in sparse(datum)), limits)
    data = batch((proto_datum(index, datum) for index, datum in enumerate(message.data)), limits)
    return ForwardBackward(data, message.loss_fn, proto_config(message), message.forward_only)


def from_json(message: BatchInput, forward_only: bool, limits: Limits) -> ForwardBackward:
    """As `from_proto`."""
    check_count(len(message.data), limits)
    inputs = (tensor for datum in message.data for tensor in datum.loss_fn_inputs.values())
    check_spread((tensor.shape or () for tensor in inputs if tensor.sparse_crow_indices is not None), limits)
    data = batch((json_datum(index, datum) for index, datum in enumerate(message.data)), limits)
    return ForwardBackward(data, message.loss_fn, finite(message.loss_fn_config or {}), forward_only)


def check_count(count: int, limits: Limits) -> None:
    """Some datums, and not so many that even to look at them would take long."""
    if count == 0:
        raise Malformed("the batch is empty: send at least one datum")
    if count > limits.batch_datums:
        raise beyond("the number of datums", count, "batch_datums", limits.batch_datums, "send several batches")


def sparse(datum: pb.Datum) -> Iterable[pb.Tensor]:
    return (tensor for tensor in datum.loss_fn_inputs.values() if tensor.HasField("sparse_csr"))


def check_spread(shapes: Iterable[Sequence[int]], limits: Limits) -> None:
    """All sparse tensors together, made dense, are within their limit: a few bytes could ask for any amount."""
    size = sum(max(0, CELL_BYTES * math.prod(shape)) for shape in shapes)
    if size > limits.spread_bytes:
        mend = "send dense tensors, or fewer"
        raise beyond("the bytes of the sparse tensors made dense", size, "spread_bytes", limits.spread_bytes, mend)


def batch(data: Iterable[Datum], limits: Limits) -> list[Datum]:
    """All of the datums."""
    out = []
    tokens = 0
    for index, datum in enumerate(data):
        tokens += fitting(f"data[{index}]", datum, limits)
        if tokens > limits.batch_tokens:
            raise beyond("the batch's tokens", tokens, "batch_tokens", limits.batch_tokens, "send several batches")
        out.append(datum)
    return out


def fitting(name: str, datum: Datum, limits: Limits) -> int:
    """How many tokens it has, if every input has as many."""
    length = check_tokens(f"{name}.model_input", datum.tokens, limits)
    for key, values in datum.inputs.items():
        if values.ndim == 0 or len(values) != length:
            raise Malformed(
                f"{name}.{key} has shape {values.shape}, and model_input has {length} tokens: both need as many"
            )
    return length


def check_tokens(name: str, tokens: Tokens, limits: Limits) -> int:
    """Their number, if they are some, not too many, and could be a vocabulary's."""
    if len(tokens) == 0:
        raise Malformed(f"{name} is empty: send at least one token")
    if len(tokens) > limits.sequence_tokens:
        mend = "cut it into shorter sequences"
        raise beyond(f"{name}'s tokens", len(tokens), "sequence_tokens", limits.sequence_tokens, mend)
    if tokens.min() < 0:
        raise Malformed(f"{name} holds token {tokens.min()}; token ids are 0 or more")
    return len(tokens)


def proto_datum(index: int, datum: pb.Datum) -> Datum:
    """Arrays are views of the message's bytes where the type allows."""
    name = f"data[{index}]"
    inputs = {key: tensors.from_proto(f"{name}.{key}", value) for key, value in datum.loss_fn_inputs.items()}
    return Datum(proto_tokens(f"{name}.model_input", datum.model_input), inputs)


def proto_tokens(name: str, chunks: Iterable[pb.Chunk]) -> Tokens:
    """All chunks one after another."""
    parts = []
    for chunk in chunks:
        if chunk.WhichOneof("chunk") != "encoded_text":
            raise only_text(name, chunk.WhichOneof("chunk") or "unknown")
        parts.append(tensors.numbers(name, chunk.encoded_text.tokens, INT32))
    return joined(parts)


def json_datum(index: int, datum: JsonDatum) -> Datum:
    """As `proto_datum`, from numbers."""
    name = f"data[{index}]"
    inputs = {key: tensors.from_json(f"{name}.{key}", value) for key, value in datum.loss_fn_inputs.items()}
    return Datum(json_tokens(f"{name}.model_input", datum.model_input), inputs)


def json_tokens(name: str, prompt: JsonInput) -> Tokens:
    """All chunks one after another."""
    parts = []
    for chunk in prompt.chunks:
        if chunk.tokens is None:
            raise only_text(name, chunk.type)
        try:
            parts.append(np.array(chunk.tokens, dtype=np.int64))
        except OverflowError as error:
            raise Malformed(f"{name} holds a token id that no vocabulary has: {error}") from error
    return joined(parts)


def joined(parts: list[Array]) -> Tokens:
    return np.concatenate(parts).astype(np.int64) if parts else np.zeros(0, dtype=np.int64)


def only_text(name: str, kind: str) -> Malformed:
    return Malformed(f"{name} holds a chunk of kind {kind!r}; the models of this server read encoded_text only")


def proto_config(message: pb.ForwardBackwardRequest) -> dict[str, float | str]:
    """The newer map where it is given: it can hold text, and repeats the numbers of the older one."""
    if not message.loss_fn_config_v2:
        return finite(dict(message.loss_fn_config))
    config: dict[str, float | str] = {}
    for key, value in message.loss_fn_config_v2.items():
        config[key] = value.text if value.WhichOneof("value") == "text" else value.number
    return finite(config)


def finite(config: Mapping[str, float | str]) -> dict[str, float | str]:
    """As it is, if nothing in it is NaN."""
    for key, value in config.items():
        if isinstance(value, float) and math.isnan(value):
            raise Malformed(f"loss_fn_config.{key} is NaN; give a number or leave it out")
    return dict(config)
