"""Losses, gradients and steps of a model, against plain torch on the same weights; what fails leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from transformers import AutoModelForCausalLM

from openrl.errors import RequestError
from openrl.models import Base
from openrl.trainer import Trainer
from openrl.weights import of_spec
from openrl.work import Datum, ForwardBackward, ModelSpec, OptimStep
from tests.openrl.small_models import VOCABULARY, data, write_base

RAGGED = data(1, (9, 5, 33, 14, 1, 20))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return write_base(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def base(folder: Path) -> Base:
    return Base("small", str(folder))


def adapter_trainer(base: Base, **options: int) -> Trainer:
    """A trainer of an adapter that is past its beginning, where B is zero."""
    trainer = Trainer(of_spec(base, ModelSpec("small", rank=4, seed=1)), **options)
    trainer.weights.parameters.flat.normal_(0.0, 0.05, generator=torch.Generator().manual_seed(1))
    return trainer


def bits(trainer: Trainer) -> list[bytes]:
    optimizer = trainer.optimizer
    kept = (trainer.weights.parameters.flat, trainer.gradient, optimizer.first, optimizer.second)
    return [tensor.numpy().tobytes() for tensor in kept]


def test_full_parameter_gradients_are_those_of_transformers_and_autograd(base: Base, folder: Path) -> None:
    trainer = Trainer(of_spec(base, ModelSpec("small", rank=None)))
    result = trainer.forward_backward(ForwardBackward(RAGGED, "cross_entropy"))
    model = AutoModelForCausalLM.from_pretrained(folder)
    total = torch.zeros(())
    for datum, logprobs in zip(RAGGED, result.logprobs, strict=True):
        logits = model(input_ids=torch.from_numpy(datum.tokens)[None]).logits[0]
        each = F.cross_entropy(logits, torch.from_numpy(datum.inputs["target_tokens"]), reduction="none")
        np.testing.assert_allclose(-each.detach().numpy(), logprobs, rtol=1e-4, atol=1e-5)
        total = total + each.sum()
    total.backward()  # type: ignore[no-untyped-call]
    assert result.metrics == {"loss:sum": pytest.approx(float(total.detach()), rel=1e-5)}
    found = trainer.weights.parameters.views(trainer.gradient)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(found[name], parameter.grad, rtol=1e-3, atol=1e-3)


def test_the_directional_derivative_of_an_adapter_is_its_gradient(base: Base) -> None:
    trainer = adapter_trainer(base)
    work = ForwardBackward(RAGGED, "cross_entropy", forward_only=True)
    trainer.forward_backward(ForwardBackward(RAGGED, "cross_entropy"))
    direction = trainer.gradient / trainer.gradient.norm()
    flat, losses = trainer.weights.parameters.flat, []
    for step in (1e-3, -2e-3):
        flat.add_(direction, alpha=step)
        losses.append(trainer.forward_backward(work).metrics["loss:sum"])
    assert (losses[0] - losses[1]) / 2e-3 == pytest.approx(float(trainer.gradient.norm()), rel=2e-2)


def test_gradients_add_up_over_calls_and_do_not_depend_on_micro_batches(base: Base) -> None:
    whole, parts, narrow = adapter_trainer(base), adapter_trainer(base), adapter_trainer(base, token_budget=16)
    whole.forward_backward(ForwardBackward(RAGGED, "cross_entropy"))
    narrow.forward_backward(ForwardBackward(RAGGED, "cross_entropy"))
    for datum in RAGGED:
        parts.forward_backward(ForwardBackward([datum], "cross_entropy"))
    torch.testing.assert_close(whole.gradient, parts.gradient, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(whole.gradient, narrow.gradient, rtol=1e-4, atol=1e-4)


def test_several_targets_a_position_are_as_many_single_ones_and_missing_weights_are_one(base: Base) -> None:
    datum = RAGGED[0]
    second = (datum.inputs["target_tokens"] + 5) % VOCABULARY
    both = np.stack([datum.inputs["target_tokens"], second], 1)
    weights = np.stack([np.full(9, 1.0), np.full(9, -0.25)], 1).astype(np.float32)
    wide, single = adapter_trainer(base), adapter_trainer(base)
    result = wide.forward_backward(
        ForwardBackward([Datum(datum.tokens, {"target_tokens": both, "weights": weights}), RAGGED[1]], "cross_entropy")
    )
    negative = Datum(datum.tokens, {"target_tokens": second, "weights": weights[:, 1].copy()})
    apart = single.forward_backward(ForwardBackward([datum, negative, RAGGED[1]], "cross_entropy"))
    assert result.logprobs[0].shape == (9, 2)
    np.testing.assert_allclose(result.logprobs[0], np.stack(apart.logprobs[:2], 1), rtol=1e-5, atol=1e-6)
    assert result.metrics["loss:sum"] == pytest.approx(apart.metrics["loss:sum"], rel=1e-5)
    torch.testing.assert_close(wide.gradient, single.gradient, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("loss", ["importance_sampling", "ppo", "cispo", "dro", "gspo"])
def test_policy_losses_train_what_was_sampled(base: Base, loss: str) -> None:
    trainer, draw = adapter_trainer(base), np.random.default_rng(2)
    before = trainer.forward_backward(ForwardBackward(RAGGED, "cross_entropy", forward_only=True)).logprobs
    batch = []
    for datum, logprobs in zip(RAGGED, before, strict=True):
        advantages = draw.standard_normal(len(logprobs)).astype(np.float32)
        inputs = {**datum.inputs, "logprobs": logprobs, "advantages": advantages}
        batch.append(
            Datum(datum.tokens, inputs | ({"sequence_ratio_mask": np.ones_like(advantages)} if loss == "gspo" else {}))
        )
    trainer.forward_backward(ForwardBackward(batch, loss))
    trainer.optim_step(OptimStep(learning_rate=1e-4))
    after = trainer.forward_backward(ForwardBackward(RAGGED, "cross_entropy", forward_only=True)).logprobs
    gains = [(b - a) * one.inputs["advantages"] for a, b, one in zip(before, after, batch, strict=True)]
    assert sum(float(gain.sum()) for gain in gains) > 0


def test_forward_only_leaves_no_gradients(base: Base) -> None:
    trainer = adapter_trainer(base)
    before = bits(trainer)
    trainer.forward_backward(ForwardBackward(RAGGED, "cross_entropy", forward_only=True))
    assert bits(trainer) == before


def test_a_call_that_fails_midway_leaves_everything_as_it_was(base: Base) -> None:
    trainer = adapter_trainer(base, token_budget=16)
    trainer.forward_backward(ForwardBackward(RAGGED[:2], "cross_entropy"))
    before = bits(trainer)
    far = np.full(20, -1e4, np.float32)  # the ratio overflows in the last and longest micro-batch
    batch = [Datum(d.tokens, {**d.inputs, "logprobs": np.zeros(len(d.tokens), np.float32)}) for d in RAGGED[:2]]
    batch.append(Datum(RAGGED[5].tokens, {**RAGGED[5].inputs, "logprobs": far}))
    batch = [Datum(d.tokens, {**d.inputs, "advantages": np.ones(len(d.tokens), np.float32)}) for d in batch]
    with pytest.raises(RequestError, match="the loss of datum 2 is not finite"):
        trainer.forward_backward(ForwardBackward(batch, "importance_sampling"))
    assert bits(trainer) == before


def test_diverged_weights_are_said_and_not_shown_as_a_number(base: Base) -> None:
    trainer = adapter_trainer(base)
    trainer.weights.parameters.flat.fill_(float("nan"))
    with pytest.raises(RequestError, match="not finite"):
        trainer.forward_backward(ForwardBackward(RAGGED, "cross_entropy", forward_only=True))
    assert not trainer.gradient.any()


def test_training_lowers_the_loss_and_its_metrics_have_one_colon(base: Base) -> None:
    trainer, seen = adapter_trainer(base), []
    for _ in range(15):
        result = trainer.forward_backward(ForwardBackward(RAGGED, "cross_entropy"))
        metrics = result.metrics | trainer.optim_step(OptimStep(learning_rate=1e-2)).metrics
        assert all(name.count(":") == 1 for name in metrics)
        seen.append(metrics["loss:sum"])
    assert seen[-1] < 0.5 * seen[0]


def test_two_runs_give_the_same_bits(base: Base) -> None:
    runs = [adapter_trainer(base) for _ in range(2)]
    for trainer in runs:
        for _ in range(3):
            trainer.forward_backward(ForwardBackward(RAGGED, "cross_entropy"))
            trainer.optim_step(OptimStep(learning_rate=1e-2, weight_decay=0.1, grad_clip_norm=1.0))
    assert bits(runs[0]) == bits(runs[1])
