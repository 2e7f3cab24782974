"""State in folders: exact, refused where it does not fit, and readable by peft and transformers."""

from __future__ import annotations

from pathlib import Path

import peft
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from openrl import checkpoints
from openrl.errors import RequestError, StateUnreadable
from openrl.models import Base
from openrl.trainer import Trainer
from openrl.weights import of_spec
from openrl.work import ForwardBackward, ModelSpec, OptimStep
from tests.openrl.small_models import data, write_base

IDS = torch.arange(2, 40).reshape(2, 19)
SPEC = ModelSpec("small", rank=4, seed=1)
FULL = ModelSpec("small", rank=None)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Base:
    torch.set_num_threads(1)
    return Base("small", str(write_base(tmp_path_factory.mktemp("base"))))


def trained(base: Base, spec: ModelSpec = SPEC) -> Trainer:
    trainer = Trainer(of_spec(base, spec))
    for seed in range(2):
        trainer.forward_backward(ForwardBackward(data(seed), "cross_entropy"))
        trainer.optim_step(OptimStep(learning_rate=1e-2))
    trainer.forward_backward(ForwardBackward(data(9), "cross_entropy"))
    return trainer


def bits(trainer: Trainer) -> list[object]:
    optimizer = trainer.optimizer
    kept = (trainer.weights.parameters.flat, trainer.gradient, optimizer.first, optimizer.second)
    return [optimizer.steps, *(tensor.numpy().tobytes() for tensor in kept)]


@pytest.mark.parametrize("spec", [SPEC, FULL])
def test_a_state_comes_back_to_the_bit_with_gradients_that_wait(base: Base, spec: ModelSpec, tmp_path: Path) -> None:
    before, after = trained(base, spec), Trainer(of_spec(base, spec))
    checkpoints.save_state(before, spec, tmp_path / "state", gradients=True)
    checkpoints.load_state(after, spec, tmp_path / "state", optimizer=True)
    assert bits(after) == bits(before)
    for trainer in (before, after):
        trainer.forward_backward(ForwardBackward(data(3), "cross_entropy"))
        trainer.optim_step(OptimStep(learning_rate=1e-2))
    assert bits(after) == bits(before)


def test_weights_alone_come_with_a_fresh_optimizer(base: Base, tmp_path: Path) -> None:
    before, after = trained(base), trained(base)
    checkpoints.save_state(before, SPEC, tmp_path / "state", gradients=False)
    checkpoints.load_state(after, SPEC, tmp_path / "state", optimizer=False)
    assert bits(after)[:3] == [0, bits(before)[1], bytes(len(bits(before)[2]))]  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # peft asks for what is deprecated
def test_an_adapter_is_read_by_peft_with_the_same_outcome(base: Base, tmp_path: Path) -> None:
    trainer = trained(base)
    checkpoints.save_external(trainer.weights, SPEC, tmp_path / "external")
    model = AutoModelForCausalLM.from_pretrained(base.source)
    loaded = peft.PeftModel.from_pretrained(model, str(tmp_path / "external"))
    with trainer.weights.in_force() as network, torch.no_grad():
        expected = network.logits(network.hidden(IDS))
    torch.testing.assert_close(loaded(input_ids=IDS).logits.detach(), expected, rtol=1e-4, atol=1e-4)


def test_all_parameters_are_read_by_transformers_with_the_same_outcome(base: Base, tmp_path: Path) -> None:
    trainer = trained(base, FULL)
    checkpoints.save_external(trainer.weights, FULL, tmp_path / "external")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "external")
    with trainer.weights.in_force() as network, torch.no_grad():
        expected = network.logits(network.hidden(IDS))
    torch.testing.assert_close(model(input_ids=IDS).logits.detach(), expected, rtol=1e-4, atol=1e-4)
    assert AutoTokenizer.from_pretrained(tmp_path / "external").decode([5]) == base.tokenizer.decode([5])


@pytest.mark.parametrize(
    "other",
    [
        ModelSpec("small", rank=8),
        ModelSpec("small", rank=4, alpha=16.0),
        ModelSpec("small", rank=4, train_mlp=False),
        FULL,
    ],
)
def test_a_checkpoint_of_another_kind_is_refused_and_nothing_changes(
    base: Base, other: ModelSpec, tmp_path: Path
) -> None:
    checkpoints.save_state(trained(base), SPEC, tmp_path / "state", gradients=False)
    trainer = trained(base, other)
    before = bits(trainer)
    with pytest.raises(RequestError, match="checkpoint state"):
        checkpoints.load_state(trainer, other, tmp_path / "state", optimizer=True)
    assert bits(trainer) == before


def test_a_checkpoint_of_another_base_is_refused(base: Base, tmp_path: Path) -> None:
    checkpoints.save_weights(trained(base).weights, SPEC, tmp_path / "snapshot")
    with pytest.raises(RequestError, match="of base model 'small', not 'other'"):
        checkpoints.read_spec(tmp_path / "snapshot", "other")


def test_optimizer_state_that_is_not_there_is_not_made_up(base: Base, tmp_path: Path) -> None:
    checkpoints.save_weights(trained(base).weights, SPEC, tmp_path / "snapshot")
    with pytest.raises(RequestError, match="has no optimizer state"):
        checkpoints.load_state(trained(base), SPEC, tmp_path / "snapshot", optimizer=True)


@pytest.mark.parametrize("name", [checkpoints.ADAPTER, checkpoints.TRAINING])
@pytest.mark.parametrize("length", [0, 5, 300, -64])
def test_a_file_that_is_cut_off_is_unreadable_and_nothing_changes(
    base: Base, name: str, length: int, tmp_path: Path
) -> None:
    trainer = trained(base)
    checkpoints.save_state(trainer, SPEC, tmp_path / "state", gradients=True)
    (tmp_path / "state" / name).write_bytes((tmp_path / "state" / name).read_bytes()[:length])
    other = Trainer(of_spec(base, SPEC))
    before = bits(other)
    with pytest.raises(StateUnreadable, match=f"checkpoint state: {name} cannot be read"):
        checkpoints.load_state(other, SPEC, tmp_path / "state", optimizer=True)
    assert bits(other) == before


def test_a_tensor_that_is_missing_is_named(base: Base, tmp_path: Path) -> None:
    trainer = trained(base)
    checkpoints.save_weights(trainer.weights, SPEC, tmp_path / "snapshot")
    tensors = load_file(tmp_path / "snapshot" / checkpoints.ADAPTER)
    gone = sorted(tensors)[0]
    del tensors[gone]
    path = tmp_path / "snapshot" / checkpoints.ADAPTER
    with safe_open(path, "pt") as file:
        header = file.metadata()
    save_file(tensors, path, header)
    with pytest.raises(StateUnreadable, match=f"{gone} is missing"):
        checkpoints.load_weights(trainer.weights, SPEC, tmp_path / "snapshot")
