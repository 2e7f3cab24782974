"""The three jobs as settings: what each practises, with which network, and how much of it.

`full` is what a demo runs; `tiny` has the same shape and takes a second or two, for tests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from examples.three_jobs.arithmetic_task import ArithmeticTask
from examples.three_jobs.dialogue_task import DialogueTask
from examples.three_jobs.sql_task import SqlTask
from examples.three_jobs.task import Task

Scale = Literal["full", "tiny"]


@dataclass(frozen=True, slots=True)
class Job:
    """Settings of one job.

    Attributes:
        imitation_phases: phases of supervised training: before the first step if the job learns by reward, in every
            step if it does not.
        imitation_updates: optimizer updates in such a phase, each of `imitation_rows` demonstrations.
        steps: rounds of sampling (and, by reward, of training on what was sampled).
        questions: prompts that a step samples, each `group` times.
        lanes: replies that the sampler draws side by side; its key-value pool is as large as they need. They divide the
            step's replies evenly.
        keep_groups: groups of which a step trains; 0 if the job does not learn by reward.
        policy_updates: optimizer updates that one step's groups are spread over.
    """

    name: str
    task: Callable[[int], Task]
    family: str
    width: int
    layers: int
    imitation_phases: int
    imitation_updates: int
    imitation_rows: int
    imitation_rate: float
    steps: int
    questions: int
    group: int
    lanes: int
    keep_groups: int
    policy_updates: int
    policy_rate: float
    temperature: float

    @property
    def by_reward(self) -> bool:
        return self.keep_groups > 0


SQL = Job(
    name="sql",
    task=SqlTask,
    family="llama",
    width=144,
    layers=3,
    imitation_phases=6,
    imitation_updates=12,
    imitation_rows=16,
    imitation_rate=3e-3,
    steps=16,
    questions=48,
    group=8,
    lanes=192,
    keep_groups=24,
    policy_updates=5,
    policy_rate=5e-4,
    temperature=1.0,
)
ARITHMETIC = Job(
    name="arithmetic",
    task=ArithmeticTask,
    family="qwen3",
    width=136,
    layers=3,
    imitation_phases=8,
    imitation_updates=18,
    imitation_rows=16,
    imitation_rate=3e-3,
    steps=18,
    questions=112,
    group=8,
    lanes=448,
    keep_groups=28,
    policy_updates=7,
    policy_rate=5e-4,
    temperature=1.0,
)
DIALOGUE = Job(
    name="dialogue",
    task=DialogueTask,
    family="gpt_neox",
    width=160,
    layers=4,
    imitation_phases=2,
    imitation_updates=8,
    imitation_rows=16,
    imitation_rate=2e-3,
    steps=10,
    questions=448,
    group=1,
    lanes=112,
    keep_groups=0,
    policy_updates=0,
    policy_rate=0.0,
    temperature=0.3,
)
JOBS = {job.name: job for job in (SQL, ARITHMETIC, DIALOGUE)}


def job(name: str, scale: Scale = "full") -> Job:
    if name not in JOBS:
        raise ValueError(f"no job is called {name!r}; there are {', '.join(JOBS)}")
    return JOBS[name] if scale == "full" else tiny(JOBS[name])


def tiny(whole: Job) -> Job:
    return replace(
        whole,
        width=32,
        layers=2,
        imitation_phases=2,
        imitation_updates=2,
        imitation_rows=8,
        steps=2,
        questions=8 if whole.by_reward else 16,
        group=4 if whole.by_reward else 1,
        lanes=8,
        keep_groups=4 if whole.by_reward else 0,
    )
