"""Training goes on with identical bits when its state is parked between its phases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch

from tsched.backends.arena import Arena
from tsched.backends.region import Regions, RegionStore


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def bits(state: Mapping[str, torch.Tensor]) -> dict[str, tuple[torch.dtype, tuple[int, ...], bytes]]:
    """Everything that can differ between two states."""
    return {
        name: (tensor.dtype, tuple(tensor.shape), bytes(_flat(tensor).view(torch.uint8).tolist()))
        for name, tensor in state.items()
    }


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().reshape(-1).clone(memory_format=torch.contiguous_format)


class Training:
    """A network, its optimizer and a generator of random numbers; one step of training changes all of them."""

    def __init__(self, model: torch.nn.Module, optimizer: type[torch.optim.Optimizer], **options: Any) -> None:
        self.model = model
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.optimizer = optimizer(parameters, lr=0.01, **options)  # type: ignore[call-arg]
        self.random = torch.Generator().manual_seed(3)
        self.losses: list[float] = []

    def regions(self) -> Regions:
        regions = Regions().add("model", self.model)
        return regions.add("optimizer", self.optimizer).add("random", self.random)

    def step(self) -> None:
        self.optimizer.zero_grad()
        loss = self.loss()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.losses.append(float(loss.detach()))

    def loss(self) -> torch.Tensor:
        result: torch.Tensor = self.model(torch.randn(4, 8, generator=self.random)).square().mean()
        return result


def network(seed: int = 0) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.Tanh(), torch.nn.Linear(16, 4)
    )


@pytest.mark.parametrize(
    ("optimizer", "options"),
    [
        (torch.optim.AdamW, {}),
        (torch.optim.SGD, {"momentum": 0.9}),
        (torch.optim.Adagrad, {}),
        (torch.optim.AdamW, {"amsgrad": True, "foreach": True}),
        (torch.optim.AdamW, {"fused": True}),
    ],
)
def test_training_with_a_park_between_every_two_phases_has_the_bits_of_training_undisturbed(
    optimizer: type[torch.optim.Optimizer], options: dict[str, float]
) -> None:
    disturbed, undisturbed = (Training(network(), optimizer, **options) for _ in range(2))
    store, other = (RegionStore(job.regions(), checksums=True) for job in (disturbed, undisturbed))
    for _ in range(6):
        store.park()
        torch.randn(1000)  # another job's memory and work
        store.restore()
        disturbed.step()
        undisturbed.step()
    store.park()
    assert disturbed.losses == undisturbed.losses
    assert bits(store.export()) == bits(other.export())


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.*:FutureWarning")  # peft asks transformers for it
def test_two_peft_jobs_take_turns_on_one_frozen_base_with_the_bits_of_training_alone() -> None:
    import peft
    import transformers

    sizes: dict[str, Any] = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
    }
    config = transformers.LlamaConfig(vocab_size=64, num_key_value_heads=2, **sizes)
    tokens = torch.arange(24).reshape(2, 12)

    def lora(base: torch.nn.Module, seed: int) -> Training:
        torch.manual_seed(seed)
        model = peft.get_peft_model(base, peft.LoraConfig(r=4, lora_dropout=0.1, target_modules=["q_proj", "v_proj"]))
        return Lora(model, torch.optim.AdamW)

    class Lora(Training):
        def loss(self) -> torch.Tensor:
            result: torch.Tensor = self.model(input_ids=tokens, labels=tokens).loss
            return result

    def base_model() -> torch.nn.Module:
        torch.manual_seed(0)
        return transformers.LlamaForCausalLM(config)

    def same_base(model: torch.nn.Module) -> torch.nn.Module:
        """Another model object on the same frozen tensors."""
        other = transformers.LlamaForCausalLM(config)
        other.load_state_dict(model.state_dict(), assign=True)
        return other

    solo = [lora(base_model(), seed) for seed in (1, 2)]
    base = base_model()
    pair = [lora(same_base(base), seed) for seed in (1, 2)]
    arena = Arena(1 << 20)
    stores = [
        RegionStore(job.regions().add("dropout", torch.default_generator).share(base), arena=arena, owner=str(number))
        for number, job in enumerate(pair)
    ]
    for job, seed in zip(solo, (1, 2), strict=True):
        torch.manual_seed(seed)
        for _ in range(3):
            job.step()
    for store, seed in zip(stores, (1, 2), strict=True):
        torch.manual_seed(seed)
        store.park()
    for _ in range(3):
        for job, store in zip(pair, stores, strict=True):
            store.restore()
            assert store.sizes.shared_bytes > 0
            job.step()
            store.trim()
            store.park()
            assert arena.used_bytes == 0
            assert store.export(["dropout"])["dropout"].numel() > 0
    assert [job.losses for job in pair] == [job.losses for job in solo]
    assert pair[0].losses[-1] < pair[0].losses[0]
    assert all(parameter.untyped_storage().nbytes() for parameter in base.parameters())
    for store in stores:
        store.restore()
    for alone, shared in zip(solo, pair, strict=True):
        weights = (
            {name: weight for name, weight in job.model.named_parameters() if weight.requires_grad}
            for job in (alone, shared)
        )
        first, second = map(bits, weights)
        assert first == second
