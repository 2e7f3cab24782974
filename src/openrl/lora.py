"""LoRA: low-rank updates of a frozen base, many to one base, with one of them at a time in force.

Every linear layer of the base knows the adapter in force, so that changing it costs one assignment a layer. B starts
at zero: a fresh adapter gives what the base gives, to the bit. There is no dropout.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from openrl.errors import RequestError
from openrl.parameters import Parameters
from openrl.work import ModelSpec

ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
MLP = ("gate_proj", "up_proj", "down_proj")
UNEMBEDDING = ("lm_head",)


class LowRank(NamedTuple):
    """The update of one layer: scale * B A, with A of shape (rank, in) and B (out, rank)."""

    a: Tensor
    b: Tensor
    scale: float


class _AdaptedLinear(torch.autograd.Function):
    """A frozen linear layer plus a low-rank update, in the fewest matrix products both ways."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, a: Tensor, b: Tensor, scale: float) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        low = rows @ a.T
        ctx.save_for_backward(rows, weight, low, a, b)
        ctx.scale = scale
        return F.linear(rows, weight, bias).addmm_(low, b.T, alpha=scale).view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, None, None, Tensor, Tensor, None]:
        rows, weight, low, a, b = ctx.saved_tensors
        gradient = gradients[0].reshape(-1, weight.shape[0])
        of_low = (gradient @ b).mul_(ctx.scale)
        of_b = (gradient.T @ low).mul_(ctx.scale)
        of_x = None
        if ctx.needs_input_grad[0]:
            of_x = (gradient @ weight).addmm_(of_low, a).view(*gradients[0].shape[:-1], -1)
        return of_x, None, None, of_low.T @ rows, of_b, None


class AdapterLinear(nn.Module):
    """A frozen linear layer of a base; `update` is what the adapter in force adds to it, if any."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.weight = linear.weight
        self.bias = linear.bias
        self.update: LowRank | None = None

    def forward(self, x: Tensor) -> Tensor:
        update = self.update
        if update is None:
            return F.linear(x, self.weight, self.bias)
        if torch.is_grad_enabled():
            adapted: Tensor = _AdaptedLinear.apply(x, self.weight, self.bias, *update)  # type: ignore[no-untyped-call]
            return adapted
        rows = x.reshape(-1, x.shape[-1])
        out = F.linear(rows, self.weight, self.bias).addmm_(rows @ update.a.T, update.b.T, alpha=update.scale)
        return out.view(*x.shape[:-1], -1)


def make_adaptable(model: nn.Module, what: str) -> dict[str, AdapterLinear]:
    """Let adapters work on a model's linear layers, in place; the layers by their names in the model."""
    targets = ATTENTION + MLP + UNEMBEDDING
    names = [name for name, module in model.named_modules() if name.rsplit(".", 1)[-1] in targets]
    layers = {name: AdapterLinear(_linear(model, name, what)) for name in names}
    missing = [target for target in targets if not any(name.rsplit(".", 1)[-1] == target for name in names)]
    if missing:
        raise RequestError(
            f"{what} has no layers named {', '.join(missing)}: LoRA works on Llama, Qwen2 and Qwen3 models"
        )
    for name, layer in layers.items():
        model.set_submodule(name, layer)
    return layers


def _linear(model: nn.Module, name: str, what: str) -> nn.Linear:
    module = model.get_submodule(name)
    if not isinstance(module, nn.Linear):
        raise RequestError(
            f"layer {name} of {what} is a {type(module).__name__}, and LoRA works on plain linear layers"
        )
    return module


class Adapter:
    """One adapter of the layers of one base."""

    def __init__(self, layers: Mapping[str, AdapterLinear], spec: ModelSpec) -> None:
        assert spec.rank is not None
        self._all = layers
        self._layers = {name: layer for name, layer in layers.items() if covers(spec, name)}
        self.parameters = Parameters(_shapes(self._layers, spec.rank))
        named, scale = self.parameters.named, spec.alpha / spec.rank
        self._updates = {
            name: LowRank(named[f"{name}.lora_A"], named[f"{name}.lora_B"], scale) for name in self._layers
        }

    def initialise(self, seed: int) -> None:
        """Draw every A as Kaiming's uniform rule has it for a linear layer, and set every B to zero."""
        generator = torch.Generator().manual_seed(seed % 2**63)
        self.parameters.flat.zero_()
        with torch.no_grad():
            for update in self._updates.values():
                nn.init.kaiming_uniform_(update.a, a=5**0.5, generator=generator)

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """Within, the base's layers have this adapter's updates; after it, none."""
        for name, layer in self._all.items():
            layer.update = self._updates.get(name)
        try:
            yield
        finally:
            for layer in self._all.values():
                layer.update = None


def covers(spec: ModelSpec, layer: str) -> bool:
    """Does an adapter of this kind have an update for the layer?"""
    last = layer.rsplit(".", 1)[-1]
    wanted = ((spec.train_attn, ATTENTION), (spec.train_mlp, MLP), (spec.train_unembed, UNEMBEDDING))
    return any(train and last in names for train, names in wanted)


def _shapes(layers: Mapping[str, AdapterLinear], rank: int) -> dict[str, torch.Size]:
    shapes = {}
    for name, layer in layers.items():
        out, into = layer.weight.shape
        shapes[f"{name}.lora_A"] = torch.Size((rank, into))
        shapes[f"{name}.lora_B"] = torch.Size((out, rank))
    return shapes
