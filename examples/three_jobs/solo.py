"""A job by itself, in one process: the reference for what it learns, and for how long its phases take."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from examples.three_jobs.jobs import Job
from examples.three_jobs.plan import Phase, Work, plan
from examples.three_jobs.sampler import Sampler, score
from examples.three_jobs.sampling import Rollouts
from examples.three_jobs.trainer import Experience, Metrics, Trainer
from examples.three_jobs.weights import fingerprint


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a run. `seconds` has one entry a phase; the curves have one entry a phase of their kind."""

    phases: tuple[Phase, ...]
    seconds: tuple[float, ...]
    imitation: tuple[Metrics, ...]
    policy: tuple[Metrics, ...]
    rewards: tuple[float, ...]
    fingerprint: str

    def device_seconds(self, device: str) -> float:
        return sum(took for phase, took in zip(self.phases, self.seconds, strict=True) if phase.device == device)


@dataclass(slots=True)
class Solo:
    """Both halves of a job, and what passes between them."""

    trainer: Trainer
    sampler: Sampler
    weights: Path
    sampled: Rollouts | None = None
    scores: list[tuple[float, ...]] = field(default_factory=list)
    imitation: list[Metrics] = field(default_factory=list)
    policy: list[Metrics] = field(default_factory=list)

    def do(self, work: Work, step: int) -> None:
        match work:
            case "imitate":
                self.imitation.append(self.trainer.imitate(step))
            case "reinforce":
                self.policy.append(self.trainer.reinforce(Experience(self.rollouts(), self.scores[-1])))
            case "publish":
                self.trainer.publish(self.weights)
            case "sync":
                self.sampler.sync(self.weights)
            case "generate":
                self.sampled = self.sampler.generate(step)
            case "score":
                self.scores.append(score(self.sampler.task, self.rollouts()))

    def rollouts(self) -> Rollouts:
        if self.sampled is None:
            raise ValueError("nothing was sampled yet; a plan samples before it scores or reinforces")
        return self.sampled


def run_solo(job: Job, seed: int, folder: Path | None = None) -> Result:
    """`folder` is where the weights pass through; by default a temporary one in shared memory."""
    if folder is None:
        with tempfile.TemporaryDirectory(dir=shared_memory()) as made:
            return run_solo(job, seed, Path(made))
    solo = Solo(Trainer(job, seed), Sampler(job, seed), folder / f"{job.name}.safetensors")
    solo.trainer.load()
    solo.sampler.load()
    seconds = tuple(timed(solo, phase) for phase in plan(job))
    rewards = tuple(sum(row) / len(row) for row in solo.scores)
    digest = fingerprint(solo.trainer.tensors())
    return Result(plan(job), seconds, tuple(solo.imitation), tuple(solo.policy), rewards, digest)


def timed(solo: Solo, phase: Phase) -> float:
    begun = time.perf_counter()
    for work in phase.work:
        solo.do(work, phase.step)
    return time.perf_counter() - begun


def shared_memory() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None
