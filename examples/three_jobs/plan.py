"""The order in which a job's phases run. A phase is the work of one turn on one device; scoring needs no device.

A phase's work is done in the order given: `imitate`, `reinforce` and `publish` are the trainer's, `sync` and
`generate` the sampler's, `score` anybody's. Every phase needs the outcome of the one before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from examples.three_jobs.jobs import Job

Device = Literal["trainer", "sampler", "cpu"]
Work = Literal["imitate", "reinforce", "publish", "sync", "generate", "score"]


@dataclass(frozen=True, slots=True)
class Phase:
    """`step` numbers the phases of one kind, from 0."""

    device: Device
    work: tuple[Work, ...]
    step: int


def plan(job: Job) -> tuple[Phase, ...]:
    return tuple(_by_reward(job) if job.by_reward else _by_example(job))


def _by_reward(job: Job) -> Iterator[Phase]:
    """Warm-up, then rounds of sampling and training, and at the end a look at what was learned."""
    yield from _imitation(job, 0)
    for step in range(job.steps):
        yield from _sampling(step)
        yield Phase("trainer", ("reinforce", "publish"), step)
    yield from _sampling(job.steps)


def _by_example(job: Job) -> Iterator[Phase]:
    for step in range(job.steps):
        yield from _imitation(job, step * job.imitation_phases)
        yield from _sampling(step)


def _imitation(job: Job, first: int) -> Iterator[Phase]:
    last = first + job.imitation_phases - 1
    for step in range(first, last):
        yield Phase("trainer", ("imitate",), step)
    yield Phase("trainer", ("imitate", "publish"), last)


def _sampling(step: int) -> Iterator[Phase]:
    yield Phase("sampler", ("sync", "generate"), step)
    yield Phase("cpu", ("score",), step)
