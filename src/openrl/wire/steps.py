"""optim_step requests to work."""

from __future__ import annotations

import math

from openrl.wire.refusal import Malformed
from openrl.wire.training import OptimizerConfig, OptimizerParams
from openrl.wire.training import OptimStep as OptimStepMessage
from openrl.work import OptimStep

ADAMW = ("adamw", "adam")


def from_json(message: OptimStepMessage) -> OptimStep:
    """The step that the message asks for. Raises Malformed for numbers that no step can be made with."""
    params = message.adam_params or message.optimizer_params or OptimizerParams()
    check_optimizer(params)
    check_numbers(params)
    return OptimStep(
        learning_rate=params.learning_rate,
        beta1=params.beta1,
        beta2=params.beta2,
        eps=params.eps,
        weight_decay=params.weight_decay,
        grad_clip_norm=max(params.grad_clip_norm, 0.0),
    )


def check_optimizer(asked: OptimizerConfig | OptimizerParams) -> None:
    """Only AdamW's formula is public."""
    if asked.type not in ADAMW:
        raise Malformed(f"the optimizer {asked.type!r} is not available here: use adamw")


def check_numbers(params: OptimizerParams) -> None:
    """Finite, and of a size that keeps the averages averages."""
    for name in ("learning_rate", "eps", "weight_decay", "grad_clip_norm"):
        value = getattr(params, name)
        if not math.isfinite(value) or (value < 0 and name != "grad_clip_norm"):
            raise Malformed(f"{name} is {value}; give a finite number of 0 or more")
    for name in ("beta1", "beta2"):
        value = getattr(params, name)
        if not 0 <= value < 1:
            raise Malformed(f"{name} is {value}; give 0 or more and less than 1")
