"""Batches: what the SDK encodes is what the worker gets, and what makes no sense is told in one line."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tinker import types
from tinker.proto.request_conv import forward_backward_request_to_proto

from openrl.wire import batches, decode
from openrl.wire import tinker_public_pb2 as pb
from openrl.wire.limits import Limits
from openrl.wire.refusal import BeyondLimit, Malformed
from openrl.wire.training import ForwardBackward

LIMITS = Limits()
F4, I8 = np.dtype("<f4"), np.dtype("<i8")


def sdk_bytes(data: list[types.Datum], loss_fn_config: dict[str, Any] | None = None, seq_id: int = 3) -> bytes:
    """A request as the SDK writes it."""
    given: Any = types.ForwardBackwardInput(data=data, loss_fn="ppo", loss_fn_config=loss_fn_config)
    request = types.ForwardBackwardRequest(model_id="s:train:0", seq_id=seq_id, forward_backward_input=given)
    return forward_backward_request_to_proto(request).SerializeToString()


def sdk_datum(tokens: list[int], **inputs: Any) -> types.Datum:
    return types.Datum(model_input=types.ModelInput.from_ints(tokens), loss_fn_inputs=inputs)


def message(**inputs: pb.Tensor) -> pb.ForwardBackwardRequest:
    """A request of one datum with two tokens."""
    chunk = pb.Chunk(encoded_text=pb.EncodedTextChunk(tokens=np.array([1, 2], "<i4").tobytes()))
    return pb.ForwardBackwardRequest(data=[pb.Datum(model_input=[chunk], loss_fn_inputs=inputs)])


def floats(*values: float, shape: tuple[int, ...] = ()) -> pb.Tensor:
    return pb.Tensor(dense=np.array(values, F4).tobytes(), dtype=pb.DTYPE_FLOAT32, shape=shape)


def test_what_the_sdk_encodes_is_what_the_worker_gets() -> None:
    data = [
        sdk_datum([1, 2, 3], target_tokens=[2, 3, 4], weights=[0.0, 1.0, -0.5]),
        sdk_datum([9], target_tokens=[8], weights=[1.0]),
    ]
    sent = batches.parse(sdk_bytes(data, {"clip_low_threshold": 0.7, "note": "x"}))
    work = batches.from_proto(sent, LIMITS)
    assert (sent.model_id, sent.seq_id) == ("s:train:0", 3)
    assert work.loss == "ppo"
    assert work.config == {"clip_low_threshold": 0.7, "note": "x"}
    assert not work.forward_only
    assert work.data[0].tokens.dtype == np.int64
    assert work.data[0].tokens.tolist() == [1, 2, 3]
    assert work.data[0].inputs["target_tokens"].tolist() == [2, 3, 4]
    assert work.data[0].inputs["weights"].dtype == np.float32
    assert work.data[0].inputs["weights"].tolist() == [0.0, 1.0, -0.5]
    assert work.data[1].tokens.tolist() == [9]


def test_sparse_targets_of_the_sdk_become_dense() -> None:
    targets = torch.zeros(6, 5, dtype=torch.int64)
    targets[2, 3] = 7
    targets[5, 0] = 1
    sent = batches.parse(sdk_bytes([sdk_datum([1] * 6, target_tokens=targets, weights=targets.float())]))
    assert sent.data[0].loss_fn_inputs["target_tokens"].HasField("sparse_csr")
    inputs = batches.from_proto(sent, LIMITS).data[0].inputs
    assert np.array_equal(inputs["target_tokens"], targets.numpy())
    assert np.array_equal(inputs["weights"], targets.float().numpy())


def test_narrow_types_are_widened() -> None:
    half = (np.array([1.5, -2.0], F4).view(np.uint32) >> 16).astype("<u2")
    work = batches.from_proto(
        message(
            a=pb.Tensor(dense=np.array([3, 4], "<i4").tobytes(), dtype=pb.DTYPE_INT32),
            b=pb.Tensor(dense=half.tobytes(), dtype=pb.DTYPE_BFLOAT16),
        ),
        LIMITS,
    )
    assert work.data[0].inputs["a"].dtype == np.int64
    assert work.data[0].inputs["b"].tolist() == [1.5, -2.0]


def test_older_clients_send_numbers_in_another_map() -> None:
    sent = message()
    sent.loss_fn_config["clip_low_threshold"] = 0.5
    assert batches.from_proto(sent, LIMITS).config == {"clip_low_threshold": 0.5}


def test_the_json_of_older_clients_means_the_same() -> None:
    body = (
        b'{"model_id":"m","seq_id":1,"surprise":{},"forward_backward_input":{"loss_fn":"cross_entropy","data":[{'
        b'"model_input":{"chunks":[{"tokens":[1,2]},{"type":"encoded_text","tokens":[3]}]},"loss_fn_inputs":{'
        b'"target_tokens":{"data":[2,3,4],"dtype":"int64"},'
        b'"weights":{"data":[1.5],"dtype":"float32","shape":[3,2],"sparse_crow_indices":[0,0,1,1],'
        b'"sparse_col_indices":[1]}}}]}}'
    )
    work = decode.json_batch(decode.message(ForwardBackward, body), False, LIMITS)
    assert work.data[0].tokens.tolist() == [1, 2, 3]
    assert work.data[0].inputs["target_tokens"].dtype == np.int64
    assert work.data[0].inputs["weights"].tolist() == [[0, 0], [0, 1.5], [0, 0]]


def test_what_was_stored_is_read_again_as_it_was_read_first() -> None:
    stored = sdk_bytes([sdk_datum([1, 2], target_tokens=[2, 3])])
    first = batches.from_proto(batches.parse(stored), LIMITS)
    again = decode.decode(decode.PROTO_BATCH, stored)
    assert repr(first) == repr(again)


@pytest.mark.parametrize("seq_id", [1, 127, 128, 16384, 2**31 - 1])
def test_whose_request_it_is_can_be_told_from_its_first_bytes(seq_id: int) -> None:
    stored = sdk_bytes([sdk_datum(list(range(1000)), target_tokens=list(range(1000)))], seq_id=seq_id)
    assert batches.parse_prefix(stored[:64]) == ("s:train:0", seq_id)


@pytest.mark.parametrize("garbage", [b"", b"\x0a", b"\x0a\x05abc", b"{}", b"\x0a\x01a\x18"])
def test_first_bytes_of_something_else_tell_nothing(garbage: bytes) -> None:
    assert batches.parse_prefix(garbage) is None


def test_bytes_that_are_no_message_are_malformed() -> None:
    with pytest.raises(Malformed, match="not a ForwardBackwardRequest"):
        batches.parse(b"\xff\xff\xff")


IMAGE = pb.ForwardBackwardRequest(data=[pb.Datum(model_input=[pb.Chunk(image=pb.ImageChunk(format="png"))])])
NEGATIVE = pb.Chunk(encoded_text=pb.EncodedTextChunk(tokens=np.array([-1], "<i4").tobytes()))
CSR = pb.SparseCsr(
    values=np.array([1.0], F4).tobytes(),
    crow_indices=np.array([0, 0, 1], I8).tobytes(),
    col_indices=np.array([9], I8).tobytes(),
)


@pytest.mark.parametrize(
    ("sent", "complaint"),
    [
        (pb.ForwardBackwardRequest(), "batch is empty"),
        (pb.ForwardBackwardRequest(data=[pb.Datum()]), r"data\[0\]\.model_input is empty"),
        (IMAGE, "'image'.*encoded_text only"),
        (pb.ForwardBackwardRequest(data=[pb.Datum(model_input=[NEGATIVE])]), "token -1"),
        (message(weights=floats(1, float("nan"))), r"data\[0\]\.weights holds nan at position 1"),
        (message(weights=floats(float("inf"), 1)), "holds inf at position 0"),
        (message(weights=floats(1, 2, 3)), r"shape \(3,\), and model_input has 2 tokens"),
        (message(weights=floats(1, 2, shape=(2, 2))), r"2 numbers, which do not fill its shape \[2, 2\]"),
        (message(weights=floats(1, 2, shape=(-1, -2))), "do not fill its shape"),
        (message(weights=pb.Tensor(dense=b"123", dtype=pb.DTYPE_FLOAT32)), "3 bytes, which is no multiple of 4"),
        (message(weights=pb.Tensor(dense=b"1234")), "dtype 0"),
        (message(w=pb.Tensor(sparse_csr=CSR, dtype=pb.DTYPE_FLOAT32, shape=[2, 3])), "row pointers and columns"),
        (message(w=pb.Tensor(sparse_csr=CSR, dtype=pb.DTYPE_FLOAT32, shape=[2, 2**60])), "sparse tensors made dense"),
    ],
)
def test_what_makes_no_sense_is_malformed(sent: pb.ForwardBackwardRequest, complaint: str) -> None:
    with pytest.raises(Malformed, match=complaint) as refusal:
        batches.from_proto(sent, LIMITS)
    assert refusal.value.category == "user"


def test_a_loss_config_of_nan_is_malformed() -> None:
    sent = message()
    sent.loss_fn_config_v2["beta"].number = float("nan")
    with pytest.raises(Malformed, match=r"loss_fn_config\.beta is NaN"):
        batches.from_proto(sent, LIMITS)


@pytest.mark.parametrize(
    ("limits", "name"),
    [
        (Limits(batch_datums=1), "batch_datums"),
        (Limits(batch_tokens=3), "batch_tokens"),
        (Limits(sequence_tokens=1), "sequence_tokens"),
    ],
)
def test_a_limit_names_itself_and_the_mend(limits: Limits, name: str) -> None:
    sent = batches.parse(sdk_bytes([sdk_datum([1, 2], target_tokens=[1, 2])] * 2))
    with pytest.raises(BeyondLimit, match=rf"limits\.{name}\): (send|cut)"):
        batches.from_proto(sent, limits)
