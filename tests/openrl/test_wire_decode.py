"""Stored requests, and JSON that is not what belongs there."""

from __future__ import annotations

import pytest

from openrl.wire import decode
from openrl.wire.refusal import Malformed
from openrl.wire.training import CreateModel, GetInfo
from openrl.work import ForwardBackward, OptimStep

BATCH = b'{"model_id":"m","seq_id":1,"%s":{"data":[{"model_input":{"chunks":[{"tokens":[1]}]}}]}}'


def test_every_kind_of_stored_request_is_read_again() -> None:
    step = decode.decode(decode.OPTIM_STEP, b'{"model_id":"m","seq_id":1}')
    batch = decode.decode(decode.JSON_BATCH, BATCH % b"forward_backward_input")
    forward = decode.decode(decode.JSON_FORWARD, BATCH % b"forward_input")
    assert isinstance(step, OptimStep)
    assert isinstance(batch, ForwardBackward)
    assert not batch.forward_only
    assert isinstance(forward, ForwardBackward)
    assert forward.forward_only


def test_a_kind_of_a_later_version_cannot_be_read() -> None:
    with pytest.raises(Malformed, match="'dream:json' cannot be read by this version"):
        decode.decode("dream:json", b"")


def test_a_batch_under_neither_name_is_missing() -> None:
    with pytest.raises(Malformed, match="forward_backward_input is missing"):
        decode.decode(decode.JSON_BATCH, b'{"model_id":"m","seq_id":1}')


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (b"{", "not the JSON that belongs here"),
        (b"[]", "not the JSON that belongs here"),
        (b"", "model_id: Field required"),
        (b'{"model_id": 3}', "model_id: Input should be a valid string"),
    ],
)
def test_wrong_json_is_told_in_one_line(body: bytes, complaint: str) -> None:
    with pytest.raises(Malformed, match=complaint) as refusal:
        decode.message(GetInfo, body)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("body", "full"),
    [
        (b'{"session_id":"s","base_model":"b"}', True),
        (b'{"session_id":"s","base_model":"b","lora_config":{"rank":0}}', True),
        (b'{"session_id":"s","base_model":"b","lora_config":{},"parameterization":{"type":"full"}}', True),
        (b'{"session_id":"s","base_model":"b","lora_config":{"rank":8}}', False),
    ],
)
def test_all_three_ways_ask_for_all_parameters(body: bytes, full: bool) -> None:
    assert decode.message(CreateModel, body).full is full
