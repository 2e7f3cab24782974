"""How much memory processes hold: on the host from `/proc`, on a device from whoever is asked.

Host memory is what a process has for itself, in memory or swapped out; pages that several share count once among
them. Pages of files count for nothing: they are read again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from tsched.backends.process.identity import Identity

GpuPids = Callable[[], Mapping[int, int | None]]
"""Bytes of device memory by pid, for every process that has a context on a device of this machine; None where they are
not known. `tsched.backends.nvml.Nvml().processes` is one."""

_OWN = ("Pss_Anon:", "Pss_Shmem:", "SwapPss:")
_CONTEXT = "/dev/nvidia-uvm"


def host_bytes(process: Identity) -> int:
    """What the process has for itself; 0 where it has exited."""
    try:
        lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
    except PermissionError:
        return _resident_bytes(process)
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(_OWN))


def _resident_bytes(process: Identity) -> int:
    """A coarser figure that everybody may read."""
    try:
        resident, shared = Path(f"/proc/{process.pid}/statm").read_text().split()[1:3]
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")


def contexts_by_open_files() -> Mapping[int, int]:
    """Who has a CUDA context, without NVML: who holds the driver's memory device open.

    That proves no byte of device memory, so none is counted: only with NVML can a park be seen to have taken effect.
    """
    if not Path(_CONTEXT).exists():
        return {}
    return {int(name): 0 for name in os.listdir("/proc") if name.isdecimal() and _holds_context(name)}


def _holds_context(pid: str) -> bool:
    folder = Path("/proc", pid, "fd")
    try:
        return any(os.readlink(file) == _CONTEXT for file in folder.iterdir())
    except OSError:  # it has exited, closed the file meanwhile, or is not ours to look into
        return False
