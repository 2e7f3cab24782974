"""What the devices of this host hold, where the driver says it; none where there is no driver."""

from __future__ import annotations

from anyio import to_thread
from msgspec import Struct

from tsched.backends.nvml import Nvml
from tsched.errors import BackendError, MissingExtra


class DeviceFigures(Struct, frozen=True):
    """One device's memory."""

    id: str
    used_bytes: int
    total_bytes: int


def find_nvml() -> Nvml | None:
    """None where its package or the driver is missing."""
    try:
        return Nvml()
    except (MissingExtra, BackendError):
        return None


class Devices:
    """Reads in a thread, since a driver may take its time."""

    def __init__(self, nvml: Nvml | None) -> None:
        self._nvml = nvml

    async def figures(self) -> list[DeviceFigures]:
        """One for each device that tells its memory."""
        return [] if self._nvml is None else await to_thread.run_sync(self._read, self._nvml)

    def _read(self, nvml: Nvml) -> list[DeviceFigures]:
        found = []
        for index in range(nvml.count()):
            try:
                seen = nvml.memory(index)
            except BackendError:  # it shares the host's memory, or has just gone
                continue
            found.append(DeviceFigures(str(index), seen.used_bytes, seen.total_bytes))
        return found
