"""The `process` backend: parks whole process trees that know nothing of it.

On NVIDIA devices the driver copies a process's device memory to host memory and gives it back (`plan`, `driver`); all
processes of a job take every step together. Without a device the tree is frozen and thawed (`freezer`, `cgroup`).
Processes are known by pid and start time (`identity`), so a pid that is given out again never stands for a stranger,
and one that has exited counts as parked, with nothing to restore.

A suspended or frozen process cannot renew its lease: that it lives is what `probe` says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import anyio
from anyio import to_thread

from tsched.backends import Order, Presence, Sizes
from tsched.backends.orders import OrderBook
from tsched.backends.process.cgroup import freezer_for
from tsched.backends.process.claim import claim, unclaimed
from tsched.backends.process.driver import CheckpointDriver, State
from tsched.backends.process.freezer import Freezer, SignalFreezer
from tsched.backends.process.identity import Identity
from tsched.backends.process.limits import Limits
from tsched.backends.process.lookup import Drivers, find_driver
from tsched.backends.process.memory import GpuPids, contexts_by_open_files
from tsched.backends.process.target import Target
from tsched.errors import BackendError
from tsched.model import SECOND_US

__all__ = [
    "CheckpointDriver",
    "GpuPids",
    "Identity",
    "Limits",
    "ProcessBackend",
    "SignalFreezer",
    "State",
    "find_driver",
]

Key = tuple[str, str, str]
_LOOK_AGAIN_S = 0.02


class ProcessBackend:
    """Serves the jobs that are registered, on this machine.

    For jobs without a context on a device, the device is the right to run: `probe` reports the memory that the tree
    has for itself as the device's while it runs and as the host's while it is frozen. Freezing frees no memory.

    Args:
        gpu_pids: who has a context on a device, and how many bytes it holds there; it is what proves that memory is
            free. Give `tsched.backends.nvml.Nvml().processes` where there are devices. By default those that hold the
            driver's memory device open, with no bytes known.
        driver: what suspends processes; by default what `find_driver` finds when the first one must be suspended.
        freezer: makes the freezer of one job's tree; by default a control group where one can be made, else signals.
        limits: how long each step may take.
    """

    suspendable = True

    def __init__(
        self,
        *,
        gpu_pids: GpuPids = contexts_by_open_files,
        driver: CheckpointDriver | None = None,
        freezer: Callable[[Sequence[Identity]], Freezer] = freezer_for,
        limits: Limits | None = None,
    ) -> None:
        self._gpu_pids, self._freezer = gpu_pids, freezer
        self._limits = limits or Limits()
        self._drivers = Drivers(driver, self._limits)
        self._targets: dict[Key, Target] = {}
        self._orders = OrderBook()

    def register(self, group: str, node: str, job: str, pids: Iterable[int] | None = None) -> None:
        """Name processes of a job; their descendants belong to it too. Named again, more are added.

        Args:
            pids: by default every process that has a context on a device and belongs to no other job, whose
                environment names no other one (TIMESLICE_JOB_ID).

        Raises:
            Invalid: a pid that must not be stopped, or belongs to another job.
            ProcessGone: no such process.
        """
        others = {key: target for key, target in self._targets.items() if key != (group, node, job)}
        taken = {process: key[2] for key, target in others.items() for process in target.members()}
        processes = claim(unclaimed(job, self._gpu_pids(), taken) if pids is None else list(pids), taken)
        known = self._targets.get((group, node, job))
        if known is not None and known.members():
            known.add(processes)
            return
        self._targets[group, node, job] = Target(
            job, processes, self._freezer, self._drivers, self._gpu_pids, self._limits
        )

    def unregister(self, group: str, node: str, job: str) -> None:
        """Forget a job and leave its processes as they are: one that is parked stays so."""
        self._targets.pop((group, node, job), None)

    async def park(self, order: Order) -> None:
        await self._orders.obey("park", order, lambda: self._target(order).park())

    async def restore(self, order: Order) -> None:
        await self._orders.obey("restore", order, lambda: self._target(order).restore())

    async def discard(self, order: Order) -> None:
        target = self._targets.get((order.group, order.node, order.job))
        if target is None:
            await self._orders.obey("discard", order, lambda: None)
        else:
            await self._orders.obey("discard", order, target.end, first=target.kill)

    async def probe(self, group: str, node: str, job: str, *, deadline_us: int) -> Presence:
        until = anyio.current_time() + deadline_us / SECOND_US
        await self._orders.settle(group, node, job, deadline_us=deadline_us)
        target = self._targets.get((group, node, job))
        if target is None:
            return Presence()
        while True:
            seen = await to_thread.run_sync(target.see, abandon_on_cancel=True)
            left_s = until - anyio.current_time()
            if not seen.leaving or left_s <= 0:
                return seen.presence
            await anyio.sleep(min(_LOOK_AGAIN_S, left_s))

    async def sizes(self, group: str, node: str, job: str) -> Sizes:
        seen = await self.probe(group, node, job, deadline_us=0)
        return Sizes(save_bytes=seen.resident_bytes + seen.parked_bytes)

    def _target(self, order: Order) -> Target:
        target = self._targets.get((order.group, order.node, order.job))
        if target is None:
            raise BackendError(
                f"job {order.job!r} has no processes on {order.group}/{order.node}: register their pids first"
            )
        return target
