"""A process's turns on its device, and its state, which waits in between: on the device, or parked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from torch import Tensor

from examples.three_jobs.footprint import footprint
from examples.three_jobs.process import Setup
from tsched.backends.arena import Arena
from tsched.backends.region import RegionBackend, Regions
from tsched.rpc.worker import Worker

NODE = "0"
DROPPED = ("kv_pool",)


class Turns:
    """To be entered once; leaving it tells the scheduler that the job has finished here."""

    def __init__(self, setup: Setup) -> None:
        device = setup.device
        needs = footprint(setup.settings, device.group)
        self._key = (device.group, NODE, setup.job)
        self._backend = RegionBackend(arena=Arena(device.capacity_bytes, device.arena))
        self._worker = Worker.connect(
            setup.address,
            job=setup.job,
            group=device.group,
            node=NODE,
            backend=self._backend,
            state_bytes=needs.state,
            turn_bytes=needs.turn,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._worker.close(done=error is None)

    @contextmanager
    def turn(self, phase: str) -> Iterator[None]:
        """The device is this job's, with its state on it."""
        with self._worker.hold(phase=phase):
            yield

    def keep(self, state: Mapping[str, Any]) -> None:
        """This is what is parked between turns; to be said in a turn, once it is there."""
        regions = Regions()
        for tag, source in state.items():
            regions.add(tag, source, drop=tag in DROPPED)
        self._backend.register(*self._key, regions)

    def copy(self) -> dict[str, Tensor]:
        """The state on the CPU, wherever it is now; needs no turn."""
        return self._backend.export(*self._key)
