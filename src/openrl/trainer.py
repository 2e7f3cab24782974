"""Training one model: losses and gradients of batches, which add up until a step, and the step.

A call that fails leaves weights, moments and accumulated gradients as they were. The same calls from the same state
give the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from openrl import datums, losses
from openrl.batches import Batch, batch, split
from openrl.errors import RequestError
from openrl.logprobs import token_logprobs
from openrl.network import Network
from openrl.optimizer import AdamW
from openrl.weights import Weights
from openrl.work import ForwardBackward, ForwardBackwardResult, Logprobs, OptimResult, OptimStep

LOGITS_BYTES = 1 << 28  # of one micro-batch; backward passes take a few times as much


class Trainer:
    """A model's weights, optimizer and accumulated gradients.

    Args:
        weights: What is trained, in place.
        token_budget: How many tokens, padding included, a micro-batch may have.
    """

    def __init__(self, weights: Weights, token_budget: int = 8192) -> None:
        size = weights.parameters.flat.numel()
        self.weights = weights
        self.optimizer = AdamW(size)
        self.gradient = torch.zeros(size)
        self._of_call = torch.zeros(size)
        self._budget = min(token_budget, LOGITS_BYTES // (4 * weights.base.vocab_size))
        weights.parameters.collect_gradients(self._of_call)

    def forward_backward(self, work: ForwardBackward) -> ForwardBackwardResult:
        """The loss of a batch; its gradients are added to what earlier calls left, unless `forward_only`."""
        datums.check(work, self.weights.base.vocab_size, self.weights.base.context_length)
        loss = losses.named(work.loss)
        constants = losses.configured(work.loss, work.config)
        names, fill = (*loss.required, *loss.optional), {"weights": 1.0, **constants}
        logprobs: dict[int, Logprobs] = {}
        total = 0.0
        self._of_call.zero_()
        with self.weights.in_force() as network, torch.set_grad_enabled(not work.forward_only):
            for indices in split(work.data, self._budget):
                part = batch(work.data, indices, names, fill)
                chosen = self._logprobs(network, part)
                total += self._loss(loss, part, chosen, constants)
                logprobs.update(self._by_datum(work, part, chosen))
        if not work.forward_only:
            self._accumulate()
        return ForwardBackwardResult([logprobs[index] for index in range(len(work.data))], {"loss:sum": total})

    def optim_step(self, work: OptimStep) -> OptimResult:
        """One step with the accumulated gradients, which are then cleared."""
        with torch.no_grad():
            norm = self.optimizer.step(self.weights.parameters.flat, self.gradient, work)
        self.gradient.zero_()
        return OptimResult({"grad_norm:mean": norm})

    def _logprobs(self, network: Network, part: Batch) -> Tensor:
        hidden = network.hidden(part.tokens).flatten(0, 1)
        if part.used is not None:
            hidden = hidden[part.used]
        return token_logprobs(network.logits(hidden), part.positions, part.targets)

    def _loss(self, loss: losses.Loss, part: Batch, chosen: Tensor, constants: Mapping[str, float]) -> float:
        inputs = {name: torch.tensor(value) for name, value in constants.items()} | part.inputs
        of_each = loss.formula(chosen, inputs, part.lengths)
        _check_finite(of_each.detach(), part)
        if of_each.requires_grad:
            of_each.sum().backward()  # type: ignore[no-untyped-call]
        return float(of_each.detach().sum(dtype=torch.float64))

    def _by_datum(self, work: ForwardBackward, part: Batch, chosen: Tensor) -> dict[int, Logprobs]:
        pieces = np.split(chosen.detach().numpy(), np.cumsum(part.lengths)[:-1])
        shapes = [work.data[index].inputs["target_tokens"].shape for index in part.data]
        return {index: piece.reshape(shape) for index, piece, shape in zip(part.data, pieces, shapes, strict=True)}

    def _accumulate(self) -> None:
        added = self.gradient + self._of_call
        if not bool(torch.isfinite(added).all()):
            raise RequestError(
                "the gradients are infinite or NaN: load an earlier checkpoint, or lower the learning rate"
            )
        self.gradient = added


def _check_finite(loss: Tensor, part: Batch) -> None:
    if bool(torch.isfinite(loss).all()):
        return
    for index, piece in zip(part.data, torch.split(loss, part.lengths), strict=True):
        if not bool(torch.isfinite(piece).all()):
            raise RequestError(
                f"the loss of datum {index} is not finite: its logprobs are far from the model's, or the weights have "
                "diverged; load an earlier checkpoint, or lower the learning rate"
            )
