"""Every loss against its textbook formula, written with plain loops; config keys and their defaults."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from openrl import losses
from openrl.errors import RequestError

LENGTHS = [3, 5, 2]
P = torch.tensor([-0.5, -2.0, -1.0, -3.0, -0.1, -4.0, -1.5, -2.2, -0.9, -0.3], dtype=torch.float64)
Q = torch.tensor([-1.5, -1.0, -1.1, -0.5, -2.1, -4.0, -1.4, -5.2, -0.9, -1.3], dtype=torch.float64)
A = torch.tensor([1.0, -2.0, 0.5, 1.5, -1.0, 2.0, -0.5, 0.0, 3.0, -1.0], dtype=torch.float64)
MASK = torch.tensor([1, 0, 1, 1, 1, 0, 1, 1, 1, 0], dtype=torch.float64)


def clip(x: float, low: float, high: float) -> float:
    return min(max(x, low), high)


def ppo_slope(p: float, q: float, a: float) -> tuple[float, float]:
    """Loss and its derivative by p at one token."""
    r = math.exp(p - q)
    unclipped, clipped = r * a, clip(r, 0.8, 1.2) * a
    return -min(unclipped, clipped), -unclipped if unclipped <= clipped else 0.0


def cispo_slope(p: float, q: float, a: float) -> tuple[float, float]:
    factor = clip(math.exp(p - q), 0.0, 4.0) * a
    return -factor * p, -factor


def dro_slope(p: float, q: float, a: float) -> tuple[float, float]:
    return -(p * a - 0.5 * 0.05 * (p - q) ** 2), -(a - 0.05 * (p - q))


def importance_slope(p: float, q: float, a: float) -> tuple[float, float]:
    return (-math.exp(p - q) * a,) * 2


SLOPES = {
    "ppo": ppo_slope,
    "cispo": cispo_slope,
    "dro": dro_slope,
    "importance_sampling": importance_slope,
}


def run(name: str, inputs: dict[str, Tensor], **config: float) -> tuple[list[float], list[float]]:
    p = P.clone().requires_grad_()
    constants = {key: torch.tensor(value) for key, value in losses.configured(name, config).items()}
    loss = losses.named(name).formula(p, constants | inputs, LENGTHS)
    loss.sum().backward()  # type: ignore[no-untyped-call]
    assert p.grad is not None
    return loss.tolist(), p.grad.tolist()


@pytest.mark.parametrize("name", list(SLOPES))
def test_policy_losses_and_their_gradients_are_those_of_the_formula(name: str) -> None:
    slope: Callable[[float, float, float], tuple[float, float]] = SLOPES[name]
    expected = [slope(*token) for token in zip(P.tolist(), Q.tolist(), A.tolist(), strict=True)]
    loss, gradient = run(name, {"logprobs": Q, "advantages": A})
    assert loss == pytest.approx([each for each, _ in expected], abs=1e-6)
    assert gradient == pytest.approx([each for _, each in expected], abs=1e-6)


def test_cross_entropy_is_minus_the_weighted_sum_with_weights_of_any_sign() -> None:
    loss, gradient = run("cross_entropy", {"weights": A})
    assert loss == pytest.approx((-P * A).tolist())
    assert gradient == pytest.approx((-A).tolist())


def test_gspo_has_one_ratio_a_sequence_over_its_marked_tokens() -> None:
    loss, gradient = run("gspo", {"logprobs": Q, "advantages": A, "sequence_ratio_mask": MASK})
    start = 0
    for length in LENGTHS:
        span = range(start, start + length)
        marked = [i for i in span if MASK[i]]
        ratio = math.exp(sum(float(P[i] - Q[i]) for i in marked) / len(marked))
        for i in span:
            unclipped, clipped = ratio * float(A[i]), clip(ratio, 0.8, 1.2) * float(A[i])
            assert loss[i] == pytest.approx(-min(unclipped, clipped))
            assert gradient[i] == pytest.approx(-unclipped if unclipped <= clipped else 0.0)
        start += length


def test_thresholds_may_come_from_the_config_or_with_every_token() -> None:
    wide, _ = run("ppo", {"logprobs": Q, "advantages": A}, clip_low_threshold=0.0, clip_high_threshold=1e9)
    free, _ = run("importance_sampling", {"logprobs": Q, "advantages": A})
    assert wide == pytest.approx(free)
    ones = torch.ones_like(P)
    fixed, _ = run("cispo", {"logprobs": Q, "advantages": A, "clip_low_threshold": ones, "clip_high_threshold": ones})
    assert fixed == pytest.approx((-P * A).tolist())


@pytest.mark.parametrize(
    ("name", "config", "says"),
    [
        ("nll", {}, "known are cross_entropy, importance_sampling, ppo, cispo, dro, gspo"),
        ("stable_reinforce", {}, "formula is not public; pass loss_fn='importance_sampling'"),
        ("custom", {}, "forward_backward_custom"),
        ("ppo", {"clip_low": 0.1}, "no config key 'clip_low'; it has clip_low_threshold, clip_high_threshold"),
        ("cross_entropy", {"beta": 1.0}, "no config key 'beta'; it has none"),
        ("dro", {"beta": math.nan}, "'beta' of loss 'dro' must be a finite number"),
        ("dro", {"beta": "much"}, "must be a finite number, not 'much'"),
        ("ppo", {"clip_low_threshold": 3.0}, "clip_low_threshold is above clip_high_threshold"),
    ],
)
def test_what_is_wrong_with_a_loss_is_said(name: str, config: dict[str, float | str], says: str) -> None:
    with pytest.raises(RequestError) as raised:
        losses.configured(name, config)
    assert says in str(raised.value)
    assert raised.value.category == "user"
