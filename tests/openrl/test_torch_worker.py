"""The worker port on torch: models side by side, snapshots that stay as they were, states that come back."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import numpy as np
import pytest

from openrl.errors import RequestError, StateUnreadable
from openrl.torch_worker import TorchWorker
from openrl.work import (
    ForwardBackward,
    LoadState,
    ModelSpec,
    OptimStep,
    SampleResult,
    SaveExternal,
    SaveResult,
    SaveSampler,
    SaveState,
    Work,
)
from openrl.worker import Worker
from tests.openrl.small_models import SPEC, data, forward_backward, logprobs, request, state, train, worker, write_base

FULL = ModelSpec("small", rank=None)


@pytest.fixture
def at(tmp_path: Path) -> TorchWorker:
    made: Worker = worker(tmp_path)
    assert isinstance(made, TorchWorker)
    made.create("m", SPEC)
    return made


def sampled(at: TorchWorker, weights: str, seed: int = 1) -> list[bytes]:
    result = at.sample([request(seed, weights, num_samples=2)])[0]
    assert isinstance(result, SampleResult), result
    return [sequence.tokens.tobytes() + sequence.logprobs.tobytes() for sequence in result.sequences]


def test_the_first_logprobs_are_those_of_the_base(at: TorchWorker) -> None:
    for seed in range(3):
        result = at.sample([request(seed, params={"max_tokens": 8})])[0]
        assert isinstance(result, SampleResult)
    at.create("other", ModelSpec("small", rank=2, seed=99))
    assert logprobs(forward_backward(at, "m", 1, True)) == logprobs(forward_backward(at, "other", 1, True))


def test_jobs_side_by_side_train_as_they_would_alone(at: TorchWorker, tmp_path: Path) -> None:
    alone = worker(tmp_path)
    for name, spec in {"m": SPEC, "n": ModelSpec("small", rank=8, seed=3), "f": FULL}.items():
        at.create(name, spec)
        alone.create(name, spec)
    results = {name: train(alone, name, range(4)) for name in ("m", "n", "f")}
    interleaved: dict[str, list[list[bytes]]] = {name: [] for name in results}
    for seed in range(4):
        for name in results:
            interleaved[name].append(logprobs(train(at, name, range(seed, seed + 1))[0]))
            sampled(at, "")
    assert interleaved == {name: [logprobs(result) for result in each] for name, each in results.items()}
    for name in results:
        assert state(at, name, tmp_path / f"{name}1") == state(alone, name, tmp_path / f"{name}2")


@pytest.mark.parametrize("spec", [SPEC, FULL])
def test_a_durable_state_goes_on_as_if_nothing_had_been(tmp_path: Path, spec: ModelSpec) -> None:
    undisturbed, crashed = worker(tmp_path), worker(tmp_path)
    for at in (undisturbed, crashed):
        at.create("m", spec)
        train(at, "m", range(2))
        forward_backward(at, "m", 7)
    crashed.save_durable("m", str(tmp_path / "durable"))
    restarted = worker(tmp_path)
    restarted.load_durable("m", spec, str(tmp_path / "durable"))
    ends = []
    for number, at in enumerate((undisturbed, restarted)):
        forward_backward(at, "m", 8)
        at.run("m", OptimStep(learning_rate=1e-2, weight_decay=0.1, grad_clip_norm=0.5))
        train(at, "m", range(3, 5))
        ends.append(state(at, "m", tmp_path / f"end{number}"))
    assert ends[0] == ends[1]


def test_a_checkpoint_resumes_exactly_in_a_new_model_and_in_the_running_one(at: TorchWorker, tmp_path: Path) -> None:
    train(at, "m", range(3))
    assert isinstance(at.run("m", SaveState(str(tmp_path / "saved"))), SaveResult)
    train(at, "m", range(3, 6))
    end = state(at, "m", tmp_path / "end")
    at.load("resumed", SPEC, str(tmp_path / "saved"), True)
    train(at, "resumed", range(3, 6))
    assert state(at, "resumed", tmp_path / "end2") == end
    assert at.run("m", LoadState(str(tmp_path / "saved"), optimizer=True)) is None
    train(at, "m", range(3, 6))
    assert state(at, "m", tmp_path / "end3") == end


def test_an_older_snapshot_samples_as_it_did_and_training_does_not_notice(at: TorchWorker, tmp_path: Path) -> None:
    undisturbed = worker(tmp_path)
    undisturbed.create("m", SPEC)
    old, new = str(tmp_path / "old"), str(tmp_path / "new")
    train(at, "m", range(3))
    at.run("m", SaveSampler(old))
    first = sampled(at, old)
    train(at, "m", range(3, 6))
    at.run("m", SaveSampler(new))
    assert sampled(at, new) != first
    assert sampled(at, old) == first
    train(undisturbed, "m", range(6))
    assert state(at, "m", tmp_path / "a") == state(undisturbed, "m", tmp_path / "b")
    assert sampled(worker(tmp_path), old) == first
    assert sampled(worker(tmp_path, snapshot_bytes=0), old) == first


def test_a_full_parameter_model_trains_and_is_sampled_and_the_base_stays(at: TorchWorker, tmp_path: Path) -> None:
    base = sampled(at, "")
    at.create("f", FULL)
    at.run("f", SaveSampler(str(tmp_path / "untrained")))
    losses = [result.metrics["loss:sum"] for result in train(at, "f", range(1)) + train(at, "f", range(1))]
    assert losses[1] < losses[0]
    at.run("f", SaveSampler(str(tmp_path / "trained")))
    at.run("f", SaveExternal(str(tmp_path / "external")))
    assert sampled(at, str(tmp_path / "untrained")) == base != sampled(at, str(tmp_path / "trained"))
    assert sampled(at, "") == base


def test_requests_for_several_snapshots_are_each_answered_with_theirs(at: TorchWorker, tmp_path: Path) -> None:
    folders = [str(tmp_path / name) for name in ("a", "b")]
    for folder in folders:
        train(at, "m", range(2))
        at.run("m", SaveSampler(folder))
    batch = [request(seed, folders[seed % 2]) for seed in range(6)]
    together = at.sample(batch)
    for one, result in zip(batch, together, strict=True):
        alone = at.sample([one])[0]
        assert isinstance(result, SampleResult)
        assert isinstance(alone, SampleResult)
        assert result.sequences[0].logprobs.tobytes() == alone.sequences[0].logprobs.tobytes()


def test_what_a_user_gets_wrong_is_refused_and_leaves_the_model_as_it_was(at: TorchWorker, tmp_path: Path) -> None:
    train(at, "m", range(2))
    forward_backward(at, "m", 5)
    before = state(at, "m", tmp_path / "before")
    wrong: list[Work] = [
        ForwardBackward([], "cross_entropy"),
        ForwardBackward(data(1), "nll"),
        ForwardBackward(data(1), "ppo"),
        OptimStep(learning_rate=float("nan")),
        LoadState(str(tmp_path / "nowhere")),
    ]
    for work in wrong:
        with pytest.raises(RequestError) as raised:
            at.run("m", work)
        assert raised.value.category == "user"
    assert state(at, "m", tmp_path / "after") == before


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (ModelSpec("nothing"), "'nothing' is not served here; served are small, openrl/tiny"),
        (ModelSpec("small", rank=0), "the rank must be from 1 to 256, not 0"),
        (ModelSpec("small", rank=10**9), "the rank must be from 1 to 256"),
        (ModelSpec("small", train_attn=False, train_mlp=False, train_unembed=False), "nothing to train"),
    ],
)
def test_a_model_that_cannot_be_is_refused(at: TorchWorker, spec: ModelSpec, says: str) -> None:
    with pytest.raises(RequestError, match=says):
        at.check(spec)
    with pytest.raises(RequestError, match=says):
        at.create("x", spec)


def test_a_snapshot_that_is_gone_or_broken_fails_its_requests_alone(at: TorchWorker, tmp_path: Path) -> None:
    at.run("m", SaveSampler(str(tmp_path / "broken")))
    (tmp_path / "broken" / "adapter_model.safetensors").write_bytes(b"short")
    fresh = worker(tmp_path)
    gone, broken, good = fresh.sample(
        [request(1, str(tmp_path / "gone")), request(1, str(tmp_path / "broken")), request(1)]
    )
    assert isinstance(gone, RequestError)
    assert isinstance(broken, RequestError)
    assert (gone.category, broken.category) == ("user", "server")
    assert isinstance(good, SampleResult)


def test_a_snapshot_of_another_base_is_refused(tmp_path: Path) -> None:
    at = TorchWorker(tmp_path, {name: str(write_base(tmp_path / name)) for name in ("small", "other")}, threads=1)
    at.create("m", ModelSpec("other", rank=2))
    at.run("m", SaveSampler(str(tmp_path / "snapshot")))
    result = at.sample([request(1, str(tmp_path / "snapshot"))])[0]
    assert "is of base model 'other', not 'small'" in str(result)


def test_a_dropped_model_is_gone_and_its_memory_with_it(at: TorchWorker) -> None:
    train(at, "m", range(1))
    trainer = weakref.ref(at._models["m"].trainer)
    at.drop("m")
    at.drop("m")
    gc.collect()
    assert trainer() is None
    with pytest.raises(RequestError, match="model m is not in memory"):
        at.run("m", OptimStep())


def test_a_durable_state_that_is_not_there_cannot_be_read(at: TorchWorker, tmp_path: Path) -> None:
    with pytest.raises((RequestError, StateUnreadable)):
        at.load_durable("x", SPEC, str(tmp_path / "nowhere"))


def test_logprobs_come_in_the_order_of_the_data_whatever_their_lengths(at: TorchWorker) -> None:
    batch = data(4, (30, 2, 17, 1, 8))
    result = at.run("m", ForwardBackward(batch, "cross_entropy", forward_only=True))
    for datum, found in zip(batch, result.logprobs, strict=True):  # type: ignore[union-attr]
        alone = at.run("m", ForwardBackward([datum], "cross_entropy", forward_only=True))
        np.testing.assert_allclose(found, alone.logprobs[0], rtol=1e-5, atol=1e-5)  # type: ignore[union-attr]
