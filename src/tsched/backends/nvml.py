"""What the devices themselves say of their memory, and waiting until they say it is free.

`Nvml` reads through `nvidia-ml-py`; `MemoryWatch` waits. A figure that the driver does not give is an error and never a
zero: an unknown byte is not a free one. Nothing here changes a device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import anyio
from anyio import to_thread
from msgspec import Struct

from tsched.errors import BackendError, Invalid, MissingDriver, MissingExtra
from tsched.model import SECOND_US

INTERVAL_S = 0.02
NOT_AVAILABLE = (1 << 64) - 1


class DeviceMemory(Struct, frozen=True):
    """One device's memory in bytes; what the driver keeps for itself counts as used."""

    total_bytes: int
    used_bytes: int
    free_bytes: int


class Nvml:
    """The memory of NVIDIA devices; reads from any thread.

    A device is an index or a UUID, that of a MIG instance included. Where MIG is on, a device's processes are those of
    its instances.

    Args:
        library: what takes the place of the module `pynvml`.

    Raises:
        MissingExtra: `nvidia-ml-py` is not installed.
        MissingDriver: there is no driver, or it cannot be used.
    """

    def __init__(self, library: Any = None) -> None:
        self._nvml = _library() if library is None else library
        with self._reading("the driver"):
            self._nvml.nvmlInit()

    def close(self) -> None:
        """Let go of the driver."""
        with self._reading("the driver"):
            self._nvml.nvmlShutdown()

    def count(self) -> int:
        """How many devices there are."""
        with self._reading("the number of devices"):
            return int(self._nvml.nvmlDeviceGetCount())

    def memory(self, device: int | str = 0) -> DeviceMemory:
        """Raises `MissingDriver` where the device tells none, as those that share the host's memory."""
        with self._reading(f"the memory of device {device}"):
            seen = self._nvml.nvmlDeviceGetMemoryInfo(self._handle(device))
        if NOT_AVAILABLE in (seen.total, seen.used, seen.free):
            raise MissingDriver(f"NVML: device {device} does not tell its memory: give `held_bytes` of your own")
        return DeviceMemory(int(seen.total), int(seen.used), int(seen.free))

    def processes(self, device: int | str | None = None) -> dict[int, int | None]:
        """Bytes held on the device, or on all of them, by process; None where the driver does not say."""
        found: dict[int, int | None] = {}
        with self._reading("the processes of a device"):
            for handle in self._handles(device):
                for process in self._nvml.nvmlDeviceGetComputeRunningProcesses(handle):
                    _add(found, int(process.pid), process.usedGpuMemory)
        return found

    def held_bytes(self, pids: Iterable[int]) -> int:
        """What these processes hold on all devices together; nothing where they are not listed.

        Raises:
            MissingDriver: the driver lists one of them and does not say what it holds.
        """
        listed = self.processes()
        held = {pid: listed[pid] for pid in pids if pid in listed}
        for pid, size in held.items():
            if size is None:
                raise MissingDriver(
                    f"NVML: the driver does not tell what process {pid} holds (as under MIG or vGPU with old "
                    "drivers): watch the device's used bytes instead"
                )
        return sum(size for size in held.values() if size is not None)

    def holder(self, pids: Sequence[int]) -> Callable[[], int]:
        """A port that says what these processes hold, which must be on a device now.

        Raises:
            BackendError: none of them is listed. In a container with process ids of its own none ever is, and all
                memory would look free.
        """
        if not set(pids) & set(self.processes()):
            raise BackendError(
                f"NVML lists none of the processes {list(pids)}: name those that hold device memory, once they do; in "
                "a container, share the host's process ids (--pid=host)"
            )
        return lambda: self.held_bytes(pids)

    def _handle(self, device: int | str) -> Any:
        if isinstance(device, int):
            return self._nvml.nvmlDeviceGetHandleByIndex(device)
        return self._nvml.nvmlDeviceGetHandleByUUID(device)

    def _handles(self, device: int | str | None) -> Iterator[Any]:
        """The device, or all, each as its MIG instances where it has such."""
        devices = range(self._nvml.nvmlDeviceGetCount()) if device is None else [device]
        for each in devices:
            handle = self._handle(each)
            yield from self._instances(handle) or [handle]

    def _instances(self, handle: Any) -> list[Any]:
        try:
            if not self._nvml.nvmlDeviceGetMigMode(handle)[0]:
                return []
            slots = range(self._nvml.nvmlDeviceGetMaxMigDeviceCount(handle))
        except self._nvml.NVMLError:  # the device knows no MIG
            return []
        return [found for slot in slots if (found := self._instance(handle, slot)) is not None]

    def _instance(self, handle: Any, slot: int) -> Any:
        try:
            return self._nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, slot)
        except self._nvml.NVMLError_NotFound:  # no instance in this slot
            return None

    @contextmanager
    def _reading(self, what: str) -> Iterator[None]:
        """Failures of a reading, typed."""
        try:
            yield
        except (self._nvml.NVMLError_NotFound, self._nvml.NVMLError_InvalidArgument) as error:
            raise Invalid(f"NVML: {what}: {error}: name a device by an index or UUID that nvidia-smi lists") from error
        except self._nvml.NVMLLibraryMismatchError as error:
            raise MissingDriver(
                f"NVML cannot read {what}: the driver is too old for nvidia-ml-py: update it"
            ) from error
        except self._nvml.NVMLError as error:
            raise MissingDriver(
                f"NVML cannot read {what}: {error}: is the NVIDIA driver installed, and the device visible here?"
            ) from error


class MemoryWatch:
    """Looks at a figure every `interval_s` until it is what was waited for: the one place that polls.

    Args:
        read: says how many bytes are held now; called in a thread.
    """

    def __init__(self, read: Callable[[], int], *, interval_s: float = INTERVAL_S) -> None:
        if not interval_s > 0:
            raise Invalid(f"memory watch: interval_s must be a number of seconds > 0, not {interval_s!r}")
        self._read, self._interval_s = read, interval_s

    async def until(self, enough: Callable[[int], bool], *, deadline_us: int) -> int:
        """The first figure that is `enough`, or the last one when `deadline_us` from now has passed.

        It looks at least once, and may be cancelled at any time.
        """
        last = anyio.current_time() + deadline_us / SECOND_US
        while True:
            seen, done = await to_thread.run_sync(self._look, enough, abandon_on_cancel=True)
            left_s = last - anyio.current_time()
            if done or left_s <= 0:
                return seen
            await anyio.sleep(min(self._interval_s, left_s))

    async def at_most(self, limit_bytes: int, *, deadline_us: int) -> int:
        """Wait until no more than that is held."""
        return await self.until(lambda seen: seen <= limit_bytes, deadline_us=deadline_us)

    async def fallen(self, by_bytes: int, *, since_bytes: int, deadline_us: int) -> int:
        """Wait until so much less is held than it was."""
        return await self.at_most(since_bytes - by_bytes, deadline_us=deadline_us)

    def _look(self, enough: Callable[[int], bool]) -> tuple[int, bool]:
        seen = self._read()
        return seen, enough(seen)


def _library() -> Any:
    try:
        return import_module("pynvml")
    except ImportError as missing:
        raise MissingExtra("NVML is read by nvidia-ml-py, which is not here: pip install 'tsched[nvidia]'") from missing


def _add(found: dict[int, int | None], pid: int, size: int | None) -> None:
    """One process may be on several devices; one unknown figure makes the sum unknown."""
    before = found.get(pid, 0)
    unknown = before is None or size is None or size == NOT_AVAILABLE
    found[pid] = None if unknown else int(before or 0) + int(size or 0)
