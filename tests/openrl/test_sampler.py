"""Sampling: what is drawn agrees with what training computes, and never depends on what is drawn beside it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from openrl import sampler
from openrl.errors import RequestError
from openrl.models import Base
from openrl.trainer import Trainer
from openrl.weights import Weights, of_spec
from openrl.work import Datum, ForwardBackward, ModelSpec, Sample, SampleResult
from tests.openrl.small_models import CONTEXT, VOCABULARY, request, write_base


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Weights:
    torch.set_num_threads(1)
    return trained(write_base(tmp_path_factory.mktemp("base")))


def trained(folder: Path) -> Weights:
    """An adapter as it might be after training."""
    base = Base("small", str(folder))
    made = of_spec(base, ModelSpec("small", rank=4, seed=1))
    made.parameters.flat.normal_(0.0, 0.05, generator=torch.Generator().manual_seed(1))
    return made


def run(weights: Weights, batch: Sequence[Sample]) -> list[SampleResult]:
    results = sampler.sample(weights, batch)
    assert all(isinstance(result, SampleResult) for result in results), results
    return results  # type: ignore[return-value]


def bits(result: SampleResult) -> list[object]:
    """All numbers in an answer, to the bit."""
    found: list[object] = []
    for sequence in result.sequences:
        found += [sequence.stop_reason, sequence.tokens.tobytes(), sequence.logprobs.tobytes()]
        found += [] if sequence.topk is None else [sequence.topk.token_ids.tobytes(), sequence.topk.logprobs.tobytes()]
    for asked in (result.prompt_logprobs, result.target_prompt_logprobs):
        found.append(None if asked is None else asked.tobytes())
    for top in (result.topk_prompt_logprobs, result.prompt_alt_tokens):
        found.append(None if top is None else (top.token_ids.tobytes(), top.logprobs.tobytes()))
    return found


def varied(seed: int) -> Sample:
    """Requests of every kind: short and long, many and few samples, filtered, and with questions about the prompt."""
    kinds: list[dict[str, Any]] = [
        {},
        {"num_samples": 5, "topk_sample_logprobs": 3},
        {"params": {"temperature": 0.7, "top_p": 0.8}},
        {"params": {"top_k": 7, "temperature": 1.5}, "num_samples": 2},
        {"prompt_logprobs": True, "topk_prompt_logprobs": 4, "prompt_alt_tokens_k": 2},
        {"prompt": np.random.default_rng(seed).integers(2, VOCABULARY, 100 + 37 * (seed % 17))},
        {"params": {"max_tokens": 150}},
        {"params": {"max_tokens": 1}, "prompt_logprobs": True},
        {"params": {"stop_tokens": tuple(range(2, 12))}},
        {"params": {"temperature": 0.0}},
    ]
    return request(seed, **kinds[seed % len(kinds)])


def test_a_sample_does_not_depend_on_what_is_sampled_beside_it(weights: Weights) -> None:
    batch = [varied(seed) for seed in range(30)]
    together = [bits(result) for result in run(weights, batch)]
    reversed_order = [bits(result) for result in run(weights, batch[::-1])][::-1]
    assert together == reversed_order
    for index in range(10):
        assert bits(run(weights, [batch[index]])[0]) == together[index], index
    assert [bits(result) for result in run(weights, batch[10:20])] == together[10:20]


def test_a_long_prompt_beside_longer_ones_is_sampled_as_alone(weights: Weights) -> None:
    draw = np.random.default_rng(5)
    batch = [request(n, prompt=draw.integers(2, VOCABULARY, 500 + 70 * n), params={"max_tokens": 60}) for n in range(7)]
    together = [bits(result) for result in run(weights, batch)]
    assert [bits(run(weights, [one])[0]) for one in batch[:3]] == together[:3]


def test_logprobs_are_those_of_forward_at_temperature_one(weights: Weights) -> None:
    batch = [request(seed, num_samples=2, params={"temperature": 0.5 + seed % 3, "top_p": 0.9}) for seed in range(12)]
    trainer = Trainer(weights)
    for one, result in zip(batch, run(weights, [*batch]), strict=True):
        for sequence in result.sequences:
            whole = np.concatenate([one.prompt, sequence.tokens.astype(np.int64)])
            datum = Datum(whole[:-1], {"target_tokens": whole[1:]})
            forward = trainer.forward_backward(ForwardBackward([datum], "cross_entropy", forward_only=True))
            np.testing.assert_allclose(sequence.logprobs, forward.logprobs[0][len(one.prompt) - 1 :], atol=1e-4)


def test_prompt_questions_are_answered_as_forward_does(weights: Weights) -> None:
    prompt = np.random.default_rng(3).integers(2, VOCABULARY, 45)
    targets = np.stack([prompt[1:], np.full(44, -1), (prompt[1:] + 1) % VOCABULARY], 1)
    asked = request(3, prompt=prompt, prompt_logprobs=True, topk_prompt_logprobs=VOCABULARY, prompt_alt_tokens_k=3)
    result = run(weights, [replaced(asked, target_prompt_logprobs=targets)])[0]
    datum = Datum(prompt[:-1], {"target_tokens": targets.clip(0)})
    forward = Trainer(weights).forward_backward(ForwardBackward([datum], "cross_entropy", forward_only=True))
    expected = forward.logprobs[0]
    assert result.prompt_logprobs is not None
    assert result.topk_prompt_logprobs is not None
    assert result.prompt_alt_tokens is not None
    assert np.isnan(result.prompt_logprobs[0])
    np.testing.assert_allclose(result.prompt_logprobs[1:], expected[:, 0], atol=1e-4)
    assert result.target_prompt_logprobs is not None
    np.testing.assert_allclose(result.target_prompt_logprobs, np.where(targets < 0, 0.0, expected), atol=1e-4)
    top = result.topk_prompt_logprobs
    assert (top.token_ids[0] == 0).all()
    assert (top.logprobs[0] == np.float32(-99999.0)).all()
    assert (np.diff(top.logprobs[1:], axis=1) <= 0).all()
    np.testing.assert_allclose(np.exp(top.logprobs[1:]).sum(1), 1.0, atol=1e-4)
    places = {(row, token): at for (row, at), token in np.ndenumerate(top.token_ids)}
    alternatives = result.prompt_alt_tokens
    assert alternatives.token_ids.shape == (44, 3)
    for (row, at), token in np.ndenumerate(alternatives.token_ids):
        assert alternatives.logprobs[row, at] == top.logprobs[row + 1, places[row + 1, token]]


def replaced(sample: Sample, **changes: Any) -> Sample:
    return Sample(**{name: getattr(sample, name) for name in sample.__struct_fields__} | changes)


def test_only_the_last_prompt_tokens_are_scored_where_so_asked(weights: Weights) -> None:
    asked = request(3, prompt=np.arange(2, 22), prompt_logprobs=True, topk_prompt_logprobs=2)
    whole, last = run(weights, [asked, replaced(asked, prompt_logprobs_last_n=5)])
    assert whole.prompt_logprobs is not None
    assert last.prompt_logprobs is not None
    assert last.topk_prompt_logprobs is not None
    assert np.isnan(last.prompt_logprobs[:15]).all()
    assert last.prompt_logprobs[15:].tobytes() == whole.prompt_logprobs[15:].tobytes()
    assert (last.topk_prompt_logprobs.logprobs[:15] == np.float32(-99999.0)).all()


def test_a_seed_gives_the_same_and_samples_of_one_request_differ(weights: Weights) -> None:
    one = request(8, num_samples=6, params={"max_tokens": 20})
    first, again, other = run(weights, [one, one, request(8, num_samples=6, params={"max_tokens": 20, "seed": 9})])
    assert bits(first) == bits(again) != bits(other)
    assert len({sequence.tokens.tobytes() for sequence in first.sequences}) == 6
    fewer = run(weights, [replaced(one, num_samples=2)])[0]
    assert bits(fewer)[:6] == bits(first)[:6]


def test_top_logprobs_of_samples_hold_the_sampled_token_when_greedy(weights: Weights) -> None:
    sequence = run(weights, [request(4, topk_sample_logprobs=3, params={"temperature": 0.0})])[0].sequences[0]
    assert sequence.topk is not None
    assert sequence.topk.token_ids.shape == (len(sequence.tokens), 3)
    assert (sequence.topk.token_ids[:, 0] == sequence.tokens).all()
    assert (sequence.topk.logprobs[:, 0] == sequence.logprobs).all()


def test_a_stop_token_is_included_and_no_stop_tokens_never_stop(weights: Weights) -> None:
    free = run(weights, [request(6, params={"max_tokens": 60})])[0].sequences[0]
    assert (free.stop_reason, len(free.tokens)) == ("length", 60)
    token = int(free.tokens[10])
    stopped = run(weights, [request(6, params={"max_tokens": 60, "stop_tokens": (token,)})])[0].sequences[0]
    assert stopped.stop_reason == "stop"
    assert stopped.tokens.tolist() == free.tokens.tolist()[: free.tokens.tolist().index(token) + 1]


def test_without_stop_tokens_it_stops_at_the_end_of_text(weights: Weights) -> None:
    ends = weights.base.end_tokens
    assert 1 in ends
    batch = [request(seed, params={"max_tokens": 300, "stop_tokens": None}) for seed in range(12)]
    sequences = [result.sequences[0] for result in run(weights, batch)]
    assert any(sequence.stop_reason == "stop" for sequence in sequences)
    for sequence in sequences:
        assert (sequence.tokens[-1] in ends) == (sequence.stop_reason == "stop")
        assert not ends & set(sequence.tokens[:-1].tolist())


def test_a_stop_string_ends_with_the_token_that_completes_it(weights: Weights) -> None:
    free = run(weights, [request(6, params={"max_tokens": 40})])[0].sequences[0]
    decode = weights.base.tokenizer.decode
    wanted = decode(free.tokens[5:8])
    stopped = run(weights, [request(6, params={"max_tokens": 40, "stop_strings": ("never ", wanted)})])[0].sequences[0]
    assert stopped.stop_reason == "stop"
    assert wanted in decode(stopped.tokens)
    assert wanted not in decode(stopped.tokens[:-1])


def test_the_context_ends_what_is_drawn(weights: Weights) -> None:
    prompt = np.full(CONTEXT - 3, 5)
    batch = [request(1, prompt=prompt, params={"max_tokens": count}) for count in (None, 100)]
    for result in run(weights, batch):
        assert (len(result.sequences[0].tokens), result.sequences[0].stop_reason) == (3, "length")
    full = run(weights, [request(1, prompt=np.full(CONTEXT, 5), prompt_logprobs=True)])[0]
    assert len(full.sequences[0].tokens) == 0


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"prompt": np.zeros(0, np.int64)}, "the prompt is empty"),
        ({"prompt": np.full(CONTEXT + 1, 5)}, "the model's context is 1024"),
        ({"prompt": np.array([3, VOCABULARY])}, "the token id 96"),
        ({"num_samples": 0}, "num_samples must be from 1"),
        ({"topk_prompt_logprobs": 10_000}, "topk_prompt_logprobs must be from 0"),
        ({"params": {"temperature": -1.0}}, "temperature must be"),
        ({"params": {"temperature": float("nan")}}, "temperature must be"),
        ({"params": {"top_p": 0.0}}, "top_p must be"),
        ({"params": {"top_k": -2}}, "top_k must be"),
        ({"params": {"max_tokens": -1}}, "max_tokens must be"),
        ({"params": {"stop_tokens": (VOCABULARY,)}}, "stop has the token id 96"),
        ({"prompt_logprobs_last_n": 1}, "needs prompt_logprobs"),
        ({"prompt": np.arange(4), "prompt_logprobs": True, "prompt_logprobs_last_n": 4}, "from 1 to 3"),
        ({"prompt": np.arange(4), "target_prompt_logprobs": np.zeros((4, 1), np.int64)}, "the shape (3, K)"),
        ({"prompt": np.arange(4), "target_prompt_logprobs": np.full((3, 1), 99)}, "the token id 99"),
    ],
)
def test_a_mistake_is_answered_and_the_others_are_sampled(weights: Weights, changes: dict[str, Any], says: str) -> None:
    good, wrong, last = sampler.sample(weights, [request(1), request(2, **changes), request(3)])
    assert isinstance(wrong, RequestError)
    assert says in str(wrong)
    assert wrong.category == "user"
    assert isinstance(good, SampleResult)
    assert isinstance(last, SampleResult)


def test_weights_that_have_diverged_are_said(weights: Weights) -> None:
    kept = weights.parameters.flat.clone()
    weights.parameters.flat.fill_(float("nan"))
    result = sampler.sample(weights, [request(1)])[0]
    weights.parameters.flat.copy_(kept)
    assert isinstance(result, RequestError)
    assert "diverged" in str(result)


def test_hundreds_of_requests_run_in_the_same_few_slots(weights: Weights) -> None:
    batch = [request(seed % 7, params={"max_tokens": 3, "seed": seed}) for seed in range(200)]
    assert len(run(weights, batch)) == 200


@pytest.mark.parametrize("changes", [{"tie_word_embeddings": True, "num_key_value_heads": 4}, {"head_dim": 16}])
@pytest.mark.parametrize("architecture", ["llama", "qwen2"])
def test_other_architectures_sample_independently_and_agree_with_forward(
    tmp_path: Path, architecture: str, changes: dict[str, Any]
) -> None:
    if architecture == "qwen2":
        changes = {name: value for name, value in changes.items() if name != "head_dim"}
    weights = trained(write_base(tmp_path / "base", architecture, **changes))
    batch = [request(seed, params={"max_tokens": 12}) for seed in range(5)]
    together = run(weights, batch)
    assert [bits(run(weights, [one])[0]) for one in batch[:2]] == [bits(result) for result in together[:2]]
    for one, result in zip(batch, together, strict=True):
        whole = np.concatenate([one.prompt, result.sequences[0].tokens.astype(np.int64)])
        datum = Datum(whole[:-1], {"target_tokens": whole[1:]})
        forward = Trainer(weights).forward_backward(ForwardBackward([datum], "cross_entropy", forward_only=True))
        np.testing.assert_allclose(result.sequences[0].logprobs, forward.logprobs[0][len(one.prompt) - 1 :], atol=1e-4)
