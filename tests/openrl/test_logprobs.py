"""Log-probabilities of chosen tokens and their gradient, against autograd through the whole matrix."""

from __future__ import annotations

import torch

from openrl.logprobs import token_logprobs


def test_values_and_gradients_are_those_of_a_log_softmax_also_for_repeated_tokens() -> None:
    torch.manual_seed(0)
    logits = torch.randn(5, 11, dtype=torch.float64)
    positions, tokens = torch.tensor([0, 0, 0, 2, 4, 4]), torch.tensor([3, 3, 7, 1, 10, 0])
    weights = torch.randn(6, dtype=torch.float64)
    mine, theirs = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    chosen = token_logprobs(mine, positions, tokens)
    expected = torch.log_softmax(theirs, -1)[positions, tokens]
    torch.testing.assert_close(chosen, expected)
    (chosen * weights).sum().backward()  # type: ignore[no-untyped-call]
    (expected * weights).sum().backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(mine.grad, theirs.grad, check_dtype=False)
