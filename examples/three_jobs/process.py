"""A job's two processes: one trains and leads, one samples. Each asks the scheduler for every turn on its device.

The leading process goes through the job's plan and has the sampling process do what is the sampler's. State is made
and changed under a lease only; between two leases it may be parked, which neither process notices. Rewards are computed
and the checkpoint is saved without a lease.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from examples.three_jobs.jobs import Job, Scale, job

TRAINERS, SAMPLERS = "trainers", "samplers"


@dataclass(frozen=True, slots=True)
class Device:
    """A device of this demo: a group of one node whose memory is an account of fixed size, and a core of its own."""

    group: str
    arena: Path
    capacity_bytes: int
    core: int


@dataclass(frozen=True, slots=True)
class Setup:
    """What a process is told: which job it is of, where the scheduler listens, and what it runs on."""

    job: str
    scale: Scale
    seed: int
    address: str
    device: Device
    folder: Path

    @property
    def settings(self) -> Job:
        return job(self.job, self.scale)

    @property
    def weights(self) -> Path:
        return self.folder / f"{self.job}.safetensors"


def lead(setup: Setup, control: Connection, sampling: Connection) -> None:
    """The trainer's process: says that it is ready, waits for the word, and reports each phase and the outcome."""
    settle(setup.device.core)
    from examples.three_jobs.leader import Leader
    from examples.three_jobs.turns import Turns

    with Turns(setup) as turns:
        leader = Leader(setup, turns, sampling)
        sampling.recv()
        control.send("ready")
        control.recv()
        for phase in leader.run():
            control.send(phase)
        control.send(leader.outcome())
        control.recv()
        sampling.send(None)


def follow(setup: Setup, leading: Connection) -> None:
    """The sampler's process: does what it is asked until there is nothing more."""
    settle(setup.device.core)
    from examples.three_jobs.follower import Follower
    from examples.three_jobs.turns import Turns

    with Turns(setup) as turns:
        follower = Follower(setup, turns)
        leading.send("ready")
        while (step := leading.recv()) is not None:
            leading.send(follower.sample(step))


def settle(core: int) -> None:
    """One core, one thread; to be said before torch is imported."""
    os.environ["OMP_NUM_THREADS"] = "1"
    os.sched_setaffinity(0, {core})
    import torch

    torch.set_num_threads(1)
