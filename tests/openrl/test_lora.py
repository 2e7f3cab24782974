"""LoRA on one shared base: nothing at first, the merged weights afterwards, and no adapter disturbs another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from openrl.errors import RequestError
from openrl.lora import AdapterLinear, LowRank, make_adaptable
from openrl.models import Base
from openrl.weights import Weights, of_base, of_spec
from openrl.work import ModelSpec
from tests.openrl.small_models import write_base

IDS = torch.arange(2, 40).reshape(2, 19)


@pytest.fixture(scope="module", params=["qwen3", "qwen2", "llama"])
def base(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Base:
    torch.set_num_threads(1)
    return Base("small", str(write_base(tmp_path_factory.mktemp("base"), request.param)))


def logits(weights: Weights) -> torch.Tensor:
    with weights.in_force() as network, torch.no_grad():
        return network.logits(network.hidden(IDS))


def filled(base: Base, seed: int) -> Weights:
    """An adapter as it might be after training."""
    weights = of_spec(base, ModelSpec("small", rank=4, seed=seed))
    weights.parameters.flat.normal_(0.0, 0.1, generator=torch.Generator().manual_seed(seed))
    return weights


def test_a_fresh_adapter_gives_what_the_base_gives_to_the_bit(base: Base) -> None:
    assert torch.equal(logits(of_spec(base, ModelSpec("small", rank=4, seed=1))), logits(of_base(base)))


def test_an_adapter_gives_what_its_merged_weights_give(base: Base) -> None:
    weights = filled(base, 1)
    adapted, named = logits(weights), weights.parameters.named
    before = {name: layer.weight.clone() for name, layer in base.layers.items()}
    for name, layer in base.layers.items():
        layer.weight += 32.0 / 4 * named[f"{name}.lora_B"] @ named[f"{name}.lora_A"]
    merged = logits(of_base(base))
    for name, layer in base.layers.items():
        layer.weight.copy_(before[name])
    torch.testing.assert_close(adapted, merged, rtol=1e-4, atol=1e-4)
    assert not torch.equal(adapted, logits(of_base(base)))


def test_adapters_take_turns_on_one_base_without_a_trace(base: Base) -> None:
    plain, one, other = of_base(base), filled(base, 1), filled(base, 2)
    first = [logits(weights) for weights in (plain, one, other)]
    again = [logits(weights) for weights in (other, plain, one)]
    assert all(torch.equal(a, b) for a, b in zip(first, [again[1], again[2], again[0]], strict=True))
    assert not torch.equal(first[1], first[2])


def test_the_seed_alone_decides_the_beginning(base: Base) -> None:
    one, same, other = (of_spec(base, ModelSpec("small", rank=4, seed=seed)).parameters.flat for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


@pytest.mark.parametrize(
    ("parts", "layers"),
    [
        ((True, False, False), {"q_proj", "k_proj", "v_proj", "o_proj"}),
        ((False, True, False), {"gate_proj", "up_proj", "down_proj"}),
        ((False, False, True), {"lm_head"}),
    ],
)
def test_an_adapter_covers_the_layers_asked_for(base: Base, parts: tuple[bool, bool, bool], layers: set[str]) -> None:
    attn, mlp, unembed = parts
    spec = ModelSpec("small", rank=2, train_attn=attn, train_mlp=mlp, train_unembed=unembed)
    assert {name.split(".")[-2] for name, _ in of_spec(base, spec).parameters} == layers


def test_gradients_are_those_of_autograd_on_the_textbook_form() -> None:
    torch.manual_seed(0)
    linear, x = nn.Linear(6, 5, dtype=torch.float64).requires_grad_(False), torch.randn(2, 3, 6, dtype=torch.float64)
    a, b = torch.randn(2, 6, dtype=torch.float64), torch.randn(5, 2, dtype=torch.float64)
    layer = AdapterLinear(linear)
    found: list[Any] = []
    expected: list[Any] = []
    for out in (found, expected):
        leaves = [tensor.clone().requires_grad_() for tensor in (x, a, b)]
        if out is found:
            layer.update = LowRank(leaves[1], leaves[2], 1.5)
            y = layer(leaves[0])
        else:
            y = linear(leaves[0]) + 1.5 * leaves[0] @ leaves[1].T @ leaves[2].T
        y.square().sum().backward()
        out += [y.detach(), *(leaf.grad for leaf in leaves)]
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs)


def test_a_model_without_the_layers_is_refused_by_name() -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    with pytest.raises(RequestError, match=r"base model x has no layers named q_proj, .*lm_head"):
        make_adaptable(model, "base model x")


def test_a_base_on_disk_is_not_changed_by_training_adapters(tmp_path: Path) -> None:
    folder = write_base(tmp_path / "base")
    base = Base("small", str(folder))
    before = {name: tensor.clone() for name, tensor in base.model.named_parameters()}
    logits(filled(base, 3))
    assert all(torch.equal(tensor, before[name]) for name, tensor in base.model.named_parameters())
