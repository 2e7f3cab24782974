"""The unmodified SDK against a live server: train, sample, save and resume, and the right exception for bad input."""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tinker
from tinker import types

from tests.openrl.live_server import Live, environment

pytestmark = [
    pytest.mark.timeout(300),
    # The SDK leaves its connections to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

TOKENS = [5, 9, 33, 7, 2, 41]
AT_ONCE_S = 20.0  # the SDK tries for five minutes where it takes a refusal for something that passes
names = (f"name-{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def service(sdk: Live) -> Iterator[tinker.ServiceClient]:
    client = tinker.ServiceClient(base_url=sdk.url, api_key=sdk.key)
    yield client
    client.close("success")


@pytest.fixture(scope="module")
def training(service: tinker.ServiceClient) -> tinker.TrainingClient:
    return service.create_lora_training_client("openrl/tiny", rank=4, seed=1).result(60)


def datum(tokens: list[int] = TOKENS, **inputs: Any) -> types.Datum:
    given = {"target_tokens": tokens[1:], "weights": [1.0] * (len(tokens) - 1), **inputs}
    return types.Datum(model_input=types.ModelInput.from_ints(tokens[:-1]), loss_fn_inputs=given)


def loss(training: tinker.TrainingClient) -> float:
    return training.forward([datum()], "cross_entropy").result(60).metrics["loss:sum"]


def train(training: tinker.TrainingClient, steps: int) -> list[float]:
    losses = []
    for _ in range(steps):
        trained = training.forward_backward([datum()], "cross_entropy")
        stepped = training.optim_step(types.AdamParams(learning_rate=0.01))
        losses.append(trained.result(60).metrics["loss:sum"])
        stepped.result(60)
    return losses


def fails(call: Callable[[], Any], error: type[Exception], *words: str) -> None:
    """The call fails at once, in that way, and says these words."""
    began = time.monotonic()
    with pytest.raises(error) as failure:
        call()
    assert time.monotonic() - began < AT_ONCE_S
    for word in words:
        assert word in str(failure.value)


# ---- the ordinary way


def test_a_loop_lowers_the_loss_and_resumes_where_it_was_saved(service: tinker.ServiceClient) -> None:
    training = service.create_lora_training_client("openrl/tiny", rank=8, seed=3).result(60)
    losses = train(training, 5)
    assert losses[-1] < losses[0]
    saved = training.save_state("middle").result(60).path
    assert saved == f"tinker://{training.model_id}/weights/middle"
    resumed = service.create_training_client_from_state_with_optimizer(saved).result(60)
    assert train(resumed, 3) == train(training, 3)


def test_weights_alone_can_be_taken_over(service: tinker.ServiceClient, training: tinker.TrainingClient) -> None:
    path = training.save_state(next(names)).result(60).path
    assert loss(service.create_training_client_from_state(path).result(60)) == loss(training)


def test_samples_agree_with_what_forward_says_of_them(training: tinker.TrainingClient) -> None:
    train(training, 1)
    sampling = training.save_weights_and_get_sampling_client().result(60)
    prompt = types.ModelInput.from_ints(TOKENS)
    params = types.SamplingParams(max_tokens=8, seed=11, stop=[])
    answer = sampling.sample(prompt, num_samples=3, sampling_params=params).result(60)
    assert len(answer.sequences) == 3
    for sequence in answer.sequences:
        whole = [*TOKENS, *sequence.tokens]
        said = training.forward([datum(whole)], "cross_entropy").result(60)
        forward = said.loss_fn_outputs[0]["logprobs"].to_numpy()[-len(sequence.tokens) :]
        assert sequence.logprobs is not None
        assert np.abs(forward - np.array(sequence.logprobs)).max() < 1e-4


def test_a_sample_depends_on_its_seed_alone(training: tinker.TrainingClient) -> None:
    sampling = training.save_weights_and_get_sampling_client().result(60)
    prompt = types.ModelInput.from_ints(TOKENS)

    def draw(seed: int) -> list[int]:
        params = types.SamplingParams(max_tokens=16, seed=seed, stop=[])
        return list(sampling.sample(prompt, 1, params).result(60).sequences[0].tokens)

    first, others = draw(1), [draw(seed) for seed in (2, 3)]
    assert draw(1) == first
    assert first not in others


def drawn(sampling: tinker.SamplingClient) -> list[tuple[list[int], list[float]]]:
    """Four samples, tokens and log-probabilities."""
    params = types.SamplingParams(max_tokens=12, seed=7, stop=[])
    answer = sampling.sample(types.ModelInput.from_ints(TOKENS), num_samples=4, sampling_params=params).result(60)
    return [(list(sequence.tokens), list(sequence.logprobs or [])) for sequence in answer.sequences]


def test_sampling_clients_keep_their_weights_to_the_bit_and_leave_training_alone(
    service: tinker.ServiceClient,
) -> None:
    watched, alone = (service.create_lora_training_client("openrl/tiny", rank=4, seed=5).result(60) for _ in range(2))
    losses, samplers, first = [], [], []
    for _ in range(3):
        losses += train(watched, 2)
        samplers.append(watched.save_weights_and_get_sampling_client().result(60))
        first.append(drawn(samplers[-1]))
        assert [drawn(sampler) for sampler in samplers] == first
    assert len({str(samples) for samples in first}) == len(first)
    assert losses == train(alone, 6)


def test_all_kinds_of_logprobs_can_be_asked_for(training: tinker.TrainingClient) -> None:
    sampling = training.save_weights_and_get_sampling_client().result(60)
    targets = types.TensorData(data=[9, 1, 33, -1, 7, 2, 2, 3, 41, 4], dtype="int64", shape=[5, 2])
    answer = sampling.sample(
        types.ModelInput.from_ints(TOKENS),
        num_samples=1,
        sampling_params=types.SamplingParams(max_tokens=2, seed=1, stop=[]),
        include_prompt_logprobs=True,
        topk_prompt_logprobs=3,
        topk_sample_logprobs=2,
        target_prompt_logprobs=targets,
        prompt_alt_tokens_k=2,
    ).result(60)
    assert answer.prompt_logprobs is not None
    assert answer.prompt_logprobs[0] is None
    assert answer.topk_prompt_logprobs is not None
    assert answer.topk_prompt_logprobs[0] is None
    assert len(answer.topk_prompt_logprobs[1] or []) == 3
    assert answer.sequences[0].topk_logprobs is not None
    assert answer.prompt_alt_tokens is not None
    assert answer.prompt_alt_tokens.tokens.shape == [5, 2]
    assert answer.target_prompt_logprobs is not None
    scored = answer.target_prompt_logprobs.to_numpy()
    assert scored[1, 1] == 0.0
    assert scored[0, 0] == pytest.approx(answer.prompt_logprobs[1])


def test_a_loss_of_ones_own_is_computed_in_the_client(training: tinker.TrainingClient) -> None:
    def custom(data: list[types.Datum], logprobs: list[Any]) -> tuple[Any, dict[str, float]]:
        return -sum(one.sum() for one in logprobs), {"mine:mean": 2.0}

    metrics = training.forward_backward_custom([datum(), datum()], custom).result(60).metrics
    assert metrics["mine:mean"] == 2.0
    training.optim_step(types.AdamParams(learning_rate=0.0)).result(60)


def test_a_batch_of_many_chunks_is_put_in_order(training: tinker.TrainingClient) -> None:
    output = training.forward([datum()] * 1500, "cross_entropy").result(120)
    assert len(output.loss_fn_outputs) == 1500


def test_a_recipes_model_name_can_be_an_alias(service: tinker.ServiceClient) -> None:
    training = service.create_lora_training_client("Qwen/Qwen3-8B", rank=4).result(60)
    assert training.get_info().model_data.model_name == "Qwen/Qwen3-8B"
    assert training.get_tokenizer().encode("hello")


# ---- bad input: the right exception, at once


@pytest.mark.parametrize(
    ("batch", "name", "config", "words"),
    [
        ([datum()], "no_such_loss", None, ["no_such_loss"]),
        ([datum()], "cross_entropy", {"no_such_key": 1.0}, ["no_such_key"]),
        ([datum(weights=[1.0, float("nan"), 1.0, 1.0, 1.0])], "cross_entropy", None, ["weights", "nan"]),
        ([datum(weights=[1.0])], "cross_entropy", None, ["weights", "shape"]),
        ([datum([5, 9, 10**6, 7])], "cross_entropy", None, ["1000000"]),
        ([datum()], "stable_reinforce", None, ["stable_reinforce"]),
        ([datum()], "importance_sampling", None, ["logprobs"]),
    ],
)
def test_a_batch_that_cannot_be_trained_on_fails(
    training: tinker.TrainingClient, batch: list[types.Datum], name: Any, config: Any, words: list[str]
) -> None:
    fails(lambda: training.forward_backward(batch, name, config).result(60), tinker.RequestFailedError, *words)
    assert loss(training) > 0


def test_a_step_that_cannot_be_made_fails(training: tinker.TrainingClient) -> None:
    def step(**params: float) -> Any:
        return training.optim_step(types.AdamParams(**params)).result(60)

    fails(lambda: step(learning_rate=-1.0), tinker.RequestFailedError, "learning_rate")
    fails(lambda: step(beta1=1.5), tinker.RequestFailedError, "beta1")


@pytest.mark.parametrize("name", ["../up", "a/b", "a..b"])
def test_a_name_that_could_leave_its_folder_fails(training: tinker.TrainingClient, name: str) -> None:
    fails(lambda: training.save_state(name).result(60), tinker.RequestFailedError, "will not do")


def test_a_name_that_is_taken_fails_or_is_overwritten(training: tinker.TrainingClient) -> None:
    name = next(names)
    training.save_state(name).result(60)
    fails(lambda: training.save_state(name).result(60), tinker.RequestFailedError, name)
    assert training.save_state(name, overwrite=True).result(60).path.endswith(name)


def test_a_model_that_cannot_be_is_refused(service: tinker.ServiceClient) -> None:
    fails(
        lambda: service.create_lora_training_client("openrl/tiny", rank=100_000).result(60),
        tinker.BadRequestError,
        "rank",
    )
    with pytest.raises(tinker.TinkerError, match="no/such"):
        service.create_lora_training_client("no/such", rank=4).result(60)


def test_paths_that_are_not_there_are_refused(service: tinker.ServiceClient) -> None:
    def load(path: str) -> Any:
        return service.create_training_client_from_state(path).result(60)

    fails(lambda: load("tinker://nobody:train:0/weights/x"), tinker.TinkerError, "not known")
    fails(lambda: load("tinker://a/weights/../x"), tinker.TinkerError)
    fails(lambda: service.create_sampling_client("tinker://nobody:train:0/weights/x").result(60), tinker.TinkerError)


def test_a_sample_that_cannot_be_drawn_is_refused(service: tinker.ServiceClient) -> None:
    sampling = service.create_sampling_client(base_model="openrl/tiny").result(60)
    prompt = types.ModelInput.from_ints(TOKENS)

    def draw(prompt: types.ModelInput = prompt, count: int = 1, **params: Any) -> Any:
        return sampling.sample(prompt, count, types.SamplingParams(**{"max_tokens": 2, **params})).result(60)

    fails(lambda: draw(types.ModelInput.empty()), tinker.BadRequestError, "prompt is empty")
    fails(lambda: draw(count=65), tinker.BadRequestError, "limits.num_samples")
    fails(lambda: draw(top_p=2.0), tinker.BadRequestError, "top_p")
    fails(lambda: draw(temperature=-1.0), tinker.BadRequestError, "temperature")
    fails(lambda: draw(types.ModelInput.from_ints([10**6])), tinker.RequestFailedError, "1000000")
    fails(lambda: draw(types.ModelInput.from_ints([1] * 5000)), tinker.RequestFailedError, "5000")


def test_a_wrong_key_is_refused(sdk: Live) -> None:
    client = tinker.ServiceClient(base_url=sdk.url, api_key="tml-wrong")
    fails(
        lambda: client.create_lora_training_client("openrl/tiny", rank=4).result(60),
        tinker.AuthenticationError,
        "API key",
    )


def test_what_is_anothers_is_not_there(sdk: Live, training: tinker.TrainingClient) -> None:
    path = training.save_state(next(names)).result(60).path
    key = key_of_stranger(sdk)
    rest = tinker.RestClient(base_url=sdk.url, api_key=key)
    with tinker.ServiceClient(base_url=sdk.url, api_key=key) as stranger:
        fails(lambda: rest.get_training_run(training.model_id).result(60), tinker.NotFoundError, "not known")
        fails(lambda: stranger.create_training_client_from_state(path).result(60), tinker.TinkerError, "not known")


def key_of_stranger(sdk: Live) -> str:
    """A key of another owner, made while the server runs."""
    command = [sys.executable, "-m", "openrl.cli", "keys", "create", "--owner", "stranger"]
    data = ["--data", str(sdk.folder / "data")]
    made = subprocess.run([*command, *data], check=True, capture_output=True, text=True, env=environment())
    return made.stdout.strip()
