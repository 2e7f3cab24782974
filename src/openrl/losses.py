"""The loss functions: what a batch costs, given the log-probabilities of its target tokens.

Every loss is a sum over target tokens and data, never divided by their number. A formula takes all targets of a batch
in a row: log-probabilities p of the model, inputs of the same shape, and how many targets each datum has. It gives one
loss a target. q are the log-probabilities of who sampled the tokens, A the advantages, r = exp(p - q) the ratio.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from openrl.errors import RequestError

Inputs = Mapping[str, Tensor]
Formula = Callable[[Tensor, Inputs, Sequence[int]], Tensor]
CLIPS = ("clip_low_threshold", "clip_high_threshold")


@dataclass(frozen=True, slots=True)
class Loss:
    """A formula, the inputs that it must and may have besides `target_tokens`, and its config keys with defaults."""

    formula: Formula
    required: tuple[str, ...] = ("logprobs", "advantages")
    optional: tuple[str, ...] = ()
    defaults: Mapping[str, float] = field(default_factory=dict)
    several_targets: bool = False  # may target_tokens be (N, K)?


def cross_entropy(p: Tensor, inputs: Inputs, lengths: Sequence[int]) -> Tensor:
    """-p w, with weights of any sign."""
    return -p * inputs["weights"]


def importance_sampling(p: Tensor, inputs: Inputs, lengths: Sequence[int]) -> Tensor:
    """-r A."""
    return -torch.exp(p - inputs["logprobs"]) * inputs["advantages"]


def ppo(p: Tensor, inputs: Inputs, lengths: Sequence[int]) -> Tensor:
    """-min(r A, clip(r) A)."""
    return _clipped(torch.exp(p - inputs["logprobs"]), inputs)


def cispo(p: Tensor, inputs: Inputs, lengths: Sequence[int]) -> Tensor:
    """-clip(r) p A, where the clipped ratio is a constant."""
    ratio = torch.exp(p.detach() - inputs["logprobs"])
    return -_clip(ratio, inputs) * p * inputs["advantages"]


def dro(p: Tensor, inputs: Inputs, lengths: Sequence[int]) -> Tensor:
    """-(p A - beta (p - q)^2 / 2)."""
    return -(p * inputs["advantages"] - 0.5 * inputs["beta"] * (p - inputs["logprobs"]).square())


def gspo(p: Tensor, inputs: Inputs, lengths: Sequence[int]) -> Tensor:
    """PPO with one ratio a sequence: the geometric mean over its marked tokens, with every token's own gradient."""
    marked = (inputs["sequence_ratio_mask"] != 0).to(p.dtype)
    log_ratios = (p.detach() - inputs["logprobs"]) * marked
    sums, counts = (torch.stack([x.sum() for x in torch.split(y, list(lengths))]) for y in (log_ratios, marked))
    mean = torch.repeat_interleave(sums / counts, torch.tensor(lengths))
    return _clipped(torch.exp(mean + p - p.detach()), inputs)


def _clip(ratio: Tensor, inputs: Inputs) -> Tensor:
    return torch.minimum(torch.maximum(ratio, inputs["clip_low_threshold"]), inputs["clip_high_threshold"])


def _clipped(ratio: Tensor, inputs: Inputs) -> Tensor:
    advantages = inputs["advantages"]
    return -torch.minimum(ratio * advantages, _clip(ratio, inputs) * advantages)


_NEAR_ONE = {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2}

LOSSES: Mapping[str, Loss] = {
    "cross_entropy": Loss(cross_entropy, required=(), optional=("weights",), several_targets=True),
    "importance_sampling": Loss(importance_sampling),
    "ppo": Loss(ppo, optional=CLIPS, defaults=_NEAR_ONE),
    "cispo": Loss(cispo, optional=CLIPS, defaults={"clip_low_threshold": 0.0, "clip_high_threshold": 4.0}),
    "dro": Loss(dro, defaults={"beta": 0.05}),
    "gspo": Loss(gspo, required=("logprobs", "advantages", "sequence_ratio_mask"), optional=CLIPS, defaults=_NEAR_ONE),
}

_NOT_PUBLIC = {
    "stable_reinforce": "its formula is not public; pass loss_fn='importance_sampling', or 'ppo' or 'cispo' to clip",
    "custom": "losses are not compiled on the server; call forward_backward_custom, which computes them on the client",
}


def named(name: str) -> Loss:
    """The loss of this name, or a `RequestError` that says which there are."""
    if name in LOSSES:
        return LOSSES[name]
    why = _NOT_PUBLIC.get(name, f"known are {', '.join(LOSSES)}")
    raise RequestError(f"loss {name!r} is not supported: {why}")


def configured(name: str, config: Mapping[str, float | str]) -> dict[str, float]:
    """A loss's constants: its defaults, with those that the request gives in their place."""
    defaults = named(name).defaults
    for key, value in config.items():
        if key not in defaults:
            raise RequestError(f"loss {name!r} has no config key {key!r}; it has {', '.join(defaults) or 'none'}")
        if not isinstance(value, int | float) or not torch.isfinite(torch.tensor(float(value))):
            raise RequestError(f"config key {key!r} of loss {name!r} must be a finite number, not {value!r}")
    constants = {**defaults, **{key: float(value) for key, value in config.items()}}
    if constants.get(CLIPS[0], 0.0) > constants.get(CLIPS[1], float("inf")):
        raise RequestError(f"loss {name!r}: clip_low_threshold is above clip_high_threshold")
    return constants
