"""The sampling side of a job, which does what the training side asks for."""

from __future__ import annotations

from dataclasses import dataclass

from examples.three_jobs.process import Setup
from examples.three_jobs.sampler import Sampler, score
from examples.three_jobs.sampling import Rollouts
from examples.three_jobs.turns import Turns


@dataclass(frozen=True, slots=True)
class Sampled:
    """What was drawn, and what it earned, row by row."""

    rollouts: Rollouts
    rewards: tuple[float, ...]


class Follower:
    """Makes its network in its first turn."""

    def __init__(self, setup: Setup, turns: Turns) -> None:
        self._setup, self._turns = setup, turns
        self._sampler = Sampler(setup.settings, setup.seed)
        self._loaded = False

    def sample(self, step: int) -> Sampled:
        """One turn with the newest weights; the scores are counted after it."""
        with self._turns.turn("generate"):
            if not self._loaded:
                self._sampler.load()
                self._turns.keep(self._sampler.state())
                self._loaded = True
            self._sampler.sync(self._setup.weights)
            rollouts = self._sampler.generate(step)
        return Sampled(rollouts, score(self._sampler.task, rollouts))
