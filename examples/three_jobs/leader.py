"""The training side of a job, which goes through the plan."""

from __future__ import annotations

from collections.abc import Iterator
from multiprocessing.connection import Connection

from examples.three_jobs.follower import Sampled
from examples.three_jobs.outcome import Outcome
from examples.three_jobs.plan import Phase, Work, plan
from examples.three_jobs.process import Setup
from examples.three_jobs.trainer import Experience, Metrics, Trainer, save_checkpoint
from examples.three_jobs.turns import Turns
from examples.three_jobs.weights import fingerprint


class Leader:
    """One run of one job; `run` to its end, then `outcome`."""

    def __init__(self, setup: Setup, turns: Turns, sampling: Connection) -> None:
        self._setup, self._turns, self._sampling = setup, turns, sampling
        self._trainer = Trainer(setup.settings, setup.seed)
        self._experience: Experience | None = None
        self._imitation: list[Metrics] = []
        self._policy: list[Metrics] = []
        self._rewards: list[float] = []

    def run(self) -> Iterator[Phase]:
        """Every phase that has ended, as soon as it has."""
        with self._turns.turn("load"):
            self._trainer.load()
            self._turns.keep(self._trainer.state())
        for phase in plan(self._setup.settings):
            match phase.device:
                case "trainer":
                    self._train(phase)
                case "sampler":
                    self._sample(phase)
                case "cpu":
                    continue  # scored by who sampled, before the answer
            yield phase

    def outcome(self) -> Outcome:
        """Saves the checkpoint, from the host copy where the state is parked, and says what was learned."""
        learned = self._turns.copy()
        save_checkpoint(self._setup.folder / f"{self._setup.job}-final.safetensors", learned, self._trainer.version)
        return Outcome(
            self._setup.job,
            tuple(metrics.loss for metrics in self._imitation),
            tuple(metrics.loss for metrics in self._policy),
            tuple(self._rewards),
            fingerprint(learned),
        )

    def _train(self, phase: Phase) -> None:
        with self._turns.turn(phase.work[0]):
            for work in phase.work:
                self._do(work, phase.step)

    def _do(self, work: Work, step: int) -> None:
        match work:
            case "imitate":
                self._imitation.append(self._trainer.imitate(step))
            case "reinforce":
                assert self._experience is not None
                self._policy.append(self._trainer.reinforce(self._experience))
            case "publish":
                self._trainer.publish(self._setup.weights)
            case _:
                raise ValueError(f"{work!r} is not a trainer's work")

    def _sample(self, phase: Phase) -> None:
        self._sampling.send(phase.step)
        sampled: Sampled = self._sampling.recv()
        self._experience = Experience(sampled.rollouts, sampled.rewards)
        self._rewards.append(sum(sampled.rewards) / len(sampled.rewards))
