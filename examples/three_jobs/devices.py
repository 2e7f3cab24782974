"""The two devices that the jobs share: a trainer and a sampler, each with a core and a fixed memory of its own."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from examples.three_jobs.footprint import footprint
from examples.three_jobs.jobs import Job
from examples.three_jobs.process import SAMPLERS, TRAINERS, Device
from tsched.model import Group, seconds

MOVE_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Devices:
    trainer: Device
    sampler: Device

    def of(self, group: str) -> Device:
        return self.trainer if group == TRAINERS else self.sampler

    def groups(self, *, exclusive: bool = False) -> tuple[Group, Group]:
        """As the scheduler knows them; `exclusive` keeps their size from it, so that it lets one job in at a time."""
        return self._group(self.trainer, exclusive), self._group(self.sampler, exclusive)

    def _group(self, device: Device, exclusive: bool) -> Group:
        capacity = None if exclusive else device.capacity_bytes
        return Group(device.group, capacity_bytes=capacity, move_timeout_us=seconds(MOVE_TIMEOUT_S))


def devices(jobs: Iterable[Job], folder: Path, room: float) -> Devices:
    """Devices with memory for one turn, and for `room` of what all the jobs keep; in any case for the largest."""
    settings = list(jobs)

    def device(group: str, core: int) -> Device:
        needs = [footprint(job, group) for job in settings]
        state = max(max(need.state for need in needs), int(room * sum(need.state for need in needs)))
        return Device(group, folder / f"{group}.arena", state + max(need.turn for need in needs), core)

    cores = sorted(os.sched_getaffinity(0))
    return Devices(device(TRAINERS, cores[0]), device(SAMPLERS, cores[-1]))
