"""optim_step: the SDK's defaults, and numbers that no step can be made with."""

from __future__ import annotations

import json
from typing import Any

import pytest

from openrl.wire import decode, steps
from openrl.wire.refusal import Malformed
from openrl.wire.training import OptimStep as OptimStepMessage
from openrl.work import OptimStep


def read(**fields: Any) -> OptimStep:
    body = json.dumps({"model_id": "m", "seq_id": 1, **fields}).encode()
    return steps.from_json(decode.message(OptimStepMessage, body))


def test_what_older_clients_leave_out_has_the_protocols_defaults() -> None:
    step = read(adam_params={"learning_rate": 0.1})
    assert step == OptimStep(learning_rate=0.1, beta1=0.9, beta2=0.95, eps=1e-12, weight_decay=0.0, grad_clip_norm=0.0)


def test_a_negative_clip_clips_nothing() -> None:
    assert read(adam_params={"grad_clip_norm": -1}).grad_clip_norm == 0


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"optimizer_params": {"type": "dimuon", "learning_rate": 0.1}}, "'dimuon' is not available"),
        ({"adam_params": {"learning_rate": float("nan")}}, "learning_rate is nan"),
        ({"adam_params": {"learning_rate": -1}}, "learning_rate is -1"),
        ({"adam_params": {"beta1": 1.0}}, "beta1 is 1"),
        ({"adam_params": {"beta2": -0.1}}, "beta2 is -0.1"),
        ({"adam_params": {"eps": float("inf")}}, "eps is inf"),
        ({"adam_params": {"learning_rate": "much"}}, r"adam_params\.learning_rate"),
    ],
)
def test_what_no_step_can_be_made_with_is_malformed(fields: dict[str, Any], complaint: str) -> None:
    with pytest.raises(Malformed, match=complaint):
        read(**fields)
