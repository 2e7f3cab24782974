"""AdamW against torch's own, clipping, and what it refuses."""

from __future__ import annotations

import pytest
import torch

from openrl.errors import RequestError
from openrl.optimizer import AdamW
from openrl.work import OptimStep


def gradients(steps: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(40, generator=generator) for _ in range(steps)]


def test_steps_equal_those_of_torch_with_other_parameters_at_every_step() -> None:
    mine, theirs = torch.linspace(-1, 1, 40), torch.linspace(-1, 1, 40).requires_grad_()
    optimizer, reference = AdamW(40), torch.optim.AdamW([theirs])
    for number, gradient in enumerate(gradients(6)):
        step = OptimStep(1e-2 / (number + 1), 0.9 - 0.1 * number, 0.95, 1e-8, 0.1 * number)
        optimizer.step(mine, gradient, step)
        theirs.grad = gradient.clone()
        reference.param_groups[0].update(
            lr=step.learning_rate, betas=(step.beta1, step.beta2), eps=step.eps, weight_decay=step.weight_decay
        )
        reference.step()
    torch.testing.assert_close(mine, theirs.detach(), rtol=1e-6, atol=1e-7)


def test_clipping_scales_all_gradients_to_the_norm_and_reports_the_norm_before() -> None:
    gradient = torch.full((4,), 3.0)
    free, clipped = AdamW(4), AdamW(4)
    assert clipped.step(torch.zeros(4), gradient, OptimStep(grad_clip_norm=1.0)) == 6.0
    free.step(torch.zeros(4), gradient / 6.0, OptimStep())
    torch.testing.assert_close(clipped.first, free.first)
    assert clipped.step(torch.zeros(4), gradient, OptimStep(grad_clip_norm=100.0)) == 6.0


@pytest.mark.parametrize(
    "step",
    [
        OptimStep(learning_rate=float("nan")),
        OptimStep(learning_rate=-1.0),
        OptimStep(beta1=1.0),
        OptimStep(beta2=-0.1),
        OptimStep(eps=0.0),
        OptimStep(weight_decay=-1.0),
        OptimStep(grad_clip_norm=float("inf")),
        OptimStep(learning_rate=1e38),
    ],
)
def test_a_step_that_cannot_be_is_refused_and_changes_nothing(step: OptimStep) -> None:
    optimizer, weights = AdamW(40), torch.ones(40)
    optimizer.step(weights, gradients(1)[0], OptimStep())
    before = [weights.clone(), optimizer.first.clone(), optimizer.second.clone()]
    with pytest.raises(RequestError):
        optimizer.step(weights, gradients(2)[1], step)
    assert all(torch.equal(a, b) for a, b in zip(before, [weights, optimizer.first, optimizer.second], strict=True))
    assert optimizer.steps == 1


def test_gradients_that_are_not_numbers_are_an_error_and_never_shown_as_zero() -> None:
    with pytest.raises(RequestError, match="norm is nan"):
        AdamW(2).step(torch.zeros(2), torch.tensor([1.0, float("nan")]), OptimStep())
