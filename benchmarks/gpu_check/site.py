"""The machine that is checked: its device, and who says how much memory is held."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import torch

from benchmarks.gpu_check.outcome import Impossible
from benchmarks.gpu_check.scale import GIB
from tsched.backends.nvml import DeviceMemory, Nvml
from tsched.backends.process.memory import contexts_by_open_files
from tsched.errors import Invalid, MissingDriver


class Site:
    """A CUDA device, whose memory NVML tells; or a CPU, where a process's own anonymous memory stands for it.

    Raises:
        MissingDriver: there is no device that torch and NVML can use; the text says which of them cannot.
        MissingExtra: NVML's package is not installed.
    """

    def __init__(self, device: str) -> None:
        self.device = torch.device(device)
        self.nvml: Nvml | None = None
        if self.device.type == "cuda":
            _check_torch()
            self.nvml = Nvml()
            self._name = _name_in_nvml(self.nvml, self.device)

    def memory(self) -> DeviceMemory:
        if self.nvml is None:
            raise Impossible("a CPU has no device memory to tell of")
        return self.nvml.memory(self._name)

    def held(self) -> int:
        """Bytes in use on the device, whoever holds them; on a CPU, by this process."""
        return anonymous_bytes("self") if self.nvml is None else self.memory().used_bytes

    def reader(self, pid: int) -> Callable[[], int]:
        """Says what this process, which is on the device now, holds; where NVML does not list it, what all hold."""
        if self.nvml is None:
            return lambda: anonymous_bytes(pid)
        if not self.lists(pid):
            return self.held
        nvml = self.nvml
        return lambda: nvml.processes(self._name).get(pid) or 0

    def lists(self, pid: int) -> bool:
        """Whether NVML knows the process by this pid; in a container with pids of its own it does not."""
        return self.nvml is not None and self.nvml.processes(self._name).get(pid) is not None

    def contexts(self) -> Mapping[int, int | None]:
        """Who has a context, for a `ProcessBackend`: also those that NVML lists under another pid, or not at all."""
        if self.nvml is None:
            return {}
        return {**contexts_by_open_files(), **self.nvml.processes(self._name)}

    def describe(self) -> dict[str, object]:
        if self.nvml is None:
            return {"device": "cpu", "torch": torch.__version__}
        return {
            "device": torch.cuda.get_device_name(self.device),
            "memory_gib": round(self.memory().total_bytes / GIB, 1),
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
        }


def anonymous_bytes(process: int | str) -> int:
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) << 10
    return 0


def host_bytes() -> int:
    """What there is for new allocations, on this machine and within this process's control group."""
    available = 0
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            available = int(line.split()[1]) << 10
    limit, used = (_figure(Path("/sys/fs/cgroup", name)) for name in ("memory.max", "memory.current"))
    return available if limit is None or used is None else min(available, max(0, limit - used))


def _figure(file: Path) -> int | None:
    try:
        text = file.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None


def _check_torch() -> None:
    if torch.version.cuda is None:
        raise MissingDriver(
            f"torch {torch.__version__} is built without CUDA: on a machine with an NVIDIA GPU, install a CUDA build"
        )
    if not torch.cuda.is_available():
        raise MissingDriver("torch finds no CUDA device: is there an NVIDIA GPU, its driver, and is it visible here?")


def _name_in_nvml(nvml: Nvml, device: torch.device) -> str:
    """NVML counts all devices, torch only those that are visible to it."""
    identity = torch.cuda.get_device_properties(device).uuid
    for kind in ("GPU", "MIG"):
        try:
            nvml.memory(f"{kind}-{identity}")
        except Invalid:
            continue
        return f"{kind}-{identity}"
    raise MissingDriver(f"NVML lists no device with torch's UUID {identity}: are both looking at the same machine?")
