"""AdamW on one flat vector: decoupled weight decay, bias correction, clipping by the norm of all gradients."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from openrl.errors import RequestError
from openrl.work import OptimStep

LARGEST = 1e6  # a learning rate or decay above this is a mistake, and would overflow


class AdamW:
    """The moments of every parameter, and how many steps there were."""

    def __init__(self, size: int) -> None:
        self.first = torch.zeros(size)
        self.second = torch.zeros(size)
        self.steps = 0

    def step(self, weights: Tensor, gradient: Tensor, work: OptimStep) -> float:
        """Move the weights; the gradients' norm before clipping. After an error nothing has changed."""
        check(work)
        norm = float(torch.linalg.vector_norm(gradient, dtype=torch.float64))
        if not math.isfinite(norm):
            raise RequestError(f"the gradients' norm is {norm}: load an earlier checkpoint, or lower the learning rate")
        if 0.0 < work.grad_clip_norm < norm:
            gradient = gradient * (work.grad_clip_norm / norm)
        first = torch.lerp(self.first, gradient, 1.0 - work.beta1)
        second = (self.second * work.beta2).addcmul_(gradient, gradient, value=1.0 - work.beta2)
        moved = self._moved(weights, first, second, work)
        if not bool(torch.isfinite(moved).all() & torch.isfinite(second).all()):
            raise RequestError("the step would make weights infinite or NaN: lower the learning rate")
        weights.copy_(moved)
        self.first, self.second, self.steps = first, second, self.steps + 1
        return norm

    def _moved(self, weights: Tensor, first: Tensor, second: Tensor, work: OptimStep) -> Tensor:
        of_first = 1.0 - work.beta1 ** (self.steps + 1)
        of_second = 1.0 - work.beta2 ** (self.steps + 1)
        scale = second.sqrt().div_(math.sqrt(of_second)).add_(work.eps)
        decayed = weights * (1.0 - work.learning_rate * work.weight_decay)
        return decayed.addcdiv_(first, scale, value=-work.learning_rate / of_first)


def check(work: OptimStep) -> None:
    """Raise for parameters with which a step means nothing."""
    bounds = {
        "learning_rate": (0.0 <= work.learning_rate <= LARGEST, f"from 0 to {LARGEST:g}"),
        "beta1": (0.0 <= work.beta1 < 1.0, "at least 0 and under 1"),
        "beta2": (0.0 <= work.beta2 < 1.0, "at least 0 and under 1"),
        "eps": (work.eps > 0.0, "above 0"),
        "weight_decay": (0.0 <= work.weight_decay <= LARGEST, f"from 0 to {LARGEST:g}"),
        "grad_clip_norm": (work.grad_clip_norm >= 0.0, "a number of at least 0, where 0 clips nothing"),
    }
    for name, (holds, right) in bounds.items():
        value = getattr(work, name)
        if not (holds and math.isfinite(value)):
            raise RequestError(f"optimizer parameter {name} must be {right}, not {value}")
