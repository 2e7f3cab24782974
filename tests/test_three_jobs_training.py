"""The three jobs learn, repeat themselves to the last bit, and pass their weights on whole."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import torch

from examples.three_jobs import JOBS, Experience, Job, Sampler, Trainer, job, plan, run_solo, score, weights
from examples.three_jobs.batches import prompt_rows, reply_logprobs, reply_rows
from examples.three_jobs.policy_gradient import advantages, most_telling, policy_loss
from examples.three_jobs.sampling import Rollouts
from examples.three_jobs.tokenizer import END, PAD
from examples.three_jobs.trainer import save_checkpoint

SEED = 11


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(params=list(JOBS))
def small(request: pytest.FixtureRequest) -> Job:
    return job(request.param, "tiny")


def pair(small: Job, path: Path) -> tuple[Trainer, Sampler]:
    """A trainer that has taken one phase, and a sampler with its weights."""
    trainer, sampler = Trainer(small, SEED), Sampler(small, SEED)
    trainer.load()
    sampler.load()
    trainer.imitate(0)
    trainer.publish(path)
    sampler.sync(path)
    return trainer, sampler


# -------------------------------------------------------------------------------------------- sampling


def test_the_sampler_and_the_trainer_agree_on_what_was_said(small: Job, tmp_path: Path) -> None:
    trainer, sampler = pair(small, tmp_path / "weights")
    rollouts = sampler.generate(0)
    with torch.no_grad():
        forced = reply_logprobs(trainer.model, rollouts.prompts, rollouts.replies)
    said = rollouts.replies != PAD
    assert said.sum() > len(rollouts.questions)
    assert torch.allclose(forced[said], rollouts.logprobs[said], atol=1e-4)
    assert bool((rollouts.logprobs[~said] == 0).all())


def test_nothing_is_said_after_the_end(small: Job, tmp_path: Path) -> None:
    _, sampler = pair(small, tmp_path / "weights")
    for reply in sampler.generate(0).replies.tolist():
        after = reply[reply.index(END) + 1 :] if END in reply else []
        assert after == [PAD] * len(after)


def test_a_key_value_pool_that_was_dropped_changes_nothing(small: Job, tmp_path: Path) -> None:
    _, kept = pair(small, tmp_path / "weights")
    _, dropped = pair(small, tmp_path / "weights")
    kept.generate(0)
    dropped.generate(0)
    for tensor in dropped.state()["kv_pool"]:  # type: ignore[union-attr]
        tensor.fill_(1e9)
    assert same(kept.generate(1), dropped.generate(1))


def test_padding_on_the_left_does_not_change_what_a_model_says(small: Job, tmp_path: Path) -> None:
    trainer, _ = pair(small, tmp_path / "weights")
    task = trainer.task
    shown = task.demonstration(Random(0))
    replies = reply_rows(task.tokenizer, [shown.reply], task.reply_tokens)
    tight = prompt_rows(task.tokenizer, [shown.prompt], len(task.tokenizer.encode(shown.prompt)))
    wide = prompt_rows(task.tokenizer, [shown.prompt], task.prompt_tokens + 7)
    said = replies != PAD
    with torch.no_grad():
        first, second = (reply_logprobs(trainer.model, prompts, replies)[said] for prompts in (tight, wide))
    assert torch.allclose(first, second, atol=1e-5)


def same(one: Rollouts, other: Rollouts) -> bool:
    tensors = ("prompts", "replies", "logprobs")
    return all(torch.equal(getattr(one, name), getattr(other, name)) for name in tensors)


# -------------------------------------------------------------------------------------------- learning by reward


def test_a_reply_is_judged_against_its_own_group() -> None:
    gains = advantages(torch.tensor([1.0, 0.0, 1.0, 1.0]), group=2)
    assert gains[0] > 0 > gains[1]
    assert gains[2:].tolist() == [0.0, 0.0]


def test_the_groups_that_differ_most_are_taken_and_of_equals_the_earlier() -> None:
    rewards = torch.tensor([1.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0])
    assert most_telling(rewards, group=2, keep=1).tolist() == [2, 3]
    assert most_telling(rewards, group=2, keep=3).tolist() == [0, 1, 2, 3, 4, 5]


def test_the_policy_gradient_raises_what_was_good_and_stops_at_the_clip() -> None:
    replies = torch.tensor([[5, END], [6, END]])
    sampled = torch.full((2, 2), -1.0)
    gains = torch.tensor([1.0, -1.0])
    near = sampled.clone().requires_grad_()
    policy_loss(near, sampled, gains, replies).backward()  # type: ignore[no-untyped-call]
    assert near.grad is not None
    assert bool((near.grad[0] < 0).all())
    assert bool((near.grad[1] > 0).all())
    far = (sampled + torch.tensor([[0.5], [-0.5]])).requires_grad_()
    policy_loss(far, sampled, gains, replies).backward()  # type: ignore[no-untyped-call]
    assert far.grad is not None
    assert not far.grad.any()


def test_padding_has_no_part_in_the_policy_loss() -> None:
    replies = torch.tensor([[5, END, PAD]])
    sampled = torch.tensor([[-1.0, -1.0, 0.0]])
    wild = torch.tensor([[-1.0, -1.0, -300.0]])
    gains = torch.tensor([1.0])
    assert policy_loss(wild, sampled, gains, replies) == policy_loss(sampled, sampled, gains, replies)


# -------------------------------------------------------------------------------------------- the same again


def test_the_same_seed_ends_in_the_same_bits_and_another_does_not(small: Job) -> None:
    torch.manual_seed(1)
    first = run_solo(small, SEED)
    torch.manual_seed(2)
    again = run_solo(small, SEED)
    assert (first.fingerprint, first.rewards, first.imitation, first.policy) == (
        again.fingerprint,
        again.rewards,
        again.imitation,
        again.policy,
    )
    assert run_solo(small, SEED + 1).fingerprint != first.fingerprint


def test_a_run_leaves_the_global_random_numbers_alone(small: Job) -> None:
    torch.manual_seed(4)
    untouched = torch.get_rng_state()
    run_solo(small, SEED)
    assert torch.equal(torch.get_rng_state(), untouched)


def test_a_run_has_a_time_for_every_phase_and_curves_for_every_kind(small: Job) -> None:
    result = run_solo(small, SEED)
    works = [work for phase in plan(small) for work in phase.work]
    assert len(result.seconds) == len(result.phases) == len(plan(small))
    assert len(result.imitation) == works.count("imitate")
    assert len(result.policy) == works.count("reinforce")
    assert len(result.rewards) == works.count("score")


def test_the_two_halves_may_live_apart_and_talk_in_pickles(small: Job, tmp_path: Path) -> None:
    """As `run_solo` does it, but everything that passes between the halves is bytes."""
    path = tmp_path / "weights"
    trainer, sampler = Trainer(small, SEED), Sampler(small, SEED)
    trainer.load()
    sampler.load()
    message = b""
    does: dict[str, Callable[[int], object]] = {
        "imitate": trainer.imitate,
        "reinforce": lambda step: trainer.reinforce(pickle.loads(message)),
        "publish": lambda step: trainer.publish(path),
        "sync": lambda step: sampler.sync(path),
    }
    for phase in plan(small):
        for work in phase.work:
            if work == "generate":
                rollouts = sampler.generate(phase.step)
                message = pickle.dumps(Experience(rollouts, score(sampler.task, rollouts)))
            elif work != "score":
                does[work](phase.step)
    assert weights.fingerprint(trainer.tensors()) == run_solo(small, SEED).fingerprint


def test_a_plan_alternates_and_publishes_before_it_samples(small: Job) -> None:
    before = ""
    for phase in plan(small):
        if phase.device == "sampler":
            assert before == "publish"
        before = phase.work[-1]
    assert plan(small)[-1].work == ("score",)


# -------------------------------------------------------------------------------------------- weights


def test_a_sampler_follows_its_trainer_to_the_last_bit(small: Job, tmp_path: Path) -> None:
    trainer, sampler = pair(small, tmp_path / "weights")
    trainer.imitate(1)
    assert trainer.publish(tmp_path / "weights") == sampler.sync(tmp_path / "weights") == 2
    assert sampler.generate(0).version == 2
    theirs, ours = dict(trainer.model.named_parameters()), dict(sampler.model.named_parameters())
    assert list(theirs) == list(ours)
    assert all(torch.equal(theirs[name], ours[name]) for name in theirs)


def test_a_reader_never_sees_half_a_file(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    weights.write(path, written(0), 0)
    ended = threading.Event()

    def write() -> None:
        for version in range(1, 150):
            weights.write(path, written(version), version)
        ended.set()

    writer = threading.Thread(target=write)
    writer.start()
    seen: list[int] = []
    while not ended.is_set() or not seen:
        tensors, version = weights.read(path)
        assert all(bool((tensor == version).all()) for tensor in tensors.values())
        seen.append(version)
    writer.join()
    assert seen == sorted(seen)
    assert weights.read(path)[1] == 149
    assert [file.name for file in tmp_path.iterdir()] == ["weights"]


def written(version: int) -> dict[str, torch.Tensor]:
    return {name: torch.full((50_000,), float(version)) for name in ("a", "b")}


def test_a_checkpoint_holds_what_it_was_given(small: Job, tmp_path: Path) -> None:
    trainer, _ = pair(small, tmp_path / "weights")
    save_checkpoint(tmp_path / "checkpoint", trainer.tensors(), 7)
    tensors, step = weights.read(tmp_path / "checkpoint")
    assert step == 7
    assert weights.fingerprint(tensors) == weights.fingerprint(trainer.tensors())


# -------------------------------------------------------------------------------------------- sizes and curves


def test_the_jobs_differ_in_family_and_in_size() -> None:
    sizes = []
    for whole in JOBS.values():
        trainer = Trainer(whole, SEED)
        trainer.load()
        sizes.append(4 * 4 * sum(parameter.numel() for parameter in trainer.model.parameters()))
    assert len({whole.family for whole in JOBS.values()}) == len(sizes) == 3
    assert min(sizes) >= 10_000_000
    assert sorted(sizes)[1] > 1.1 * sorted(sizes)[0]


def test_a_job_that_does_not_exist_is_named_with_those_that_do() -> None:
    with pytest.raises(ValueError, match="'poetry'; there are sql, arithmetic, dialogue"):
        job("poetry")


def test_imitation_lowers_its_loss_and_repeats_nothing(small: Job) -> None:
    trainer = Trainer(replace(small, imitation_updates=8), SEED)
    trainer.load()
    losses = [trainer.imitate(step).loss for step in range(3)]
    assert losses == sorted(losses, reverse=True)


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", ["sql", "arithmetic"])
def test_reward_rises_well_above_what_imitation_reached(name: str) -> None:
    rewards = run_solo(job(name), seed=0).rewards
    assert 0.1 < rewards[0] < 0.5
    assert sum(rewards[-3:]) / 3 > rewards[0] + 0.25


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_dialogue_is_learned() -> None:
    result = run_solo(job("dialogue"), seed=0)
    assert result.rewards[0] < 0.6
    assert result.rewards[-1] > 0.9
    assert result.imitation[-1].loss < result.imitation[0].loss / 5
