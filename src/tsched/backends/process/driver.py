"""What a device's driver must offer to park a process that knows nothing of it: the port, its states and its errors.

A process is locked, then checkpointed to host memory; restored, then unlocked. The calls block; only a lock can be
given a time.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

from tsched.errors import BackendError, DeviceMemoryFull, HostMemoryFull, MissingDriver

MEND = (
    "install an NVIDIA driver of at least 570 (CUDA 12.8), turn on persistence mode (nvidia-smi -pm 1), "
    "and pip install 'tsched[nvidia]' or put cuda-checkpoint on the PATH"
)


class State(StrEnum):
    """Where a process with a CUDA context stands."""

    RUNNING = "running"
    LOCKED = "locked"
    CHECKPOINTED = "checkpointed"
    FAILED = "failed"
    CHECKPOINTING = "checkpointing"
    RESTORING = "restoring"


class CheckpointDriver(Protocol):
    """The checkpoint calls for one process; each raises `BackendError` and then has changed nothing."""

    def state(self, pid: int) -> State | None:
        """None where the driver says of none: the process has no CUDA context, or is not ours to ask about."""
        ...

    def lock(self, pid: int, timeout_s: float) -> None: ...

    def checkpoint(self, pid: int) -> None: ...

    def restore(self, pid: int) -> None: ...

    def unlock(self, pid: int) -> None: ...


def refusal(step: str, pid: int, reason: str) -> BackendError:
    """The error for what the driver answered, by its name or its words."""
    text = f"{step} of process {pid}: {reason}"
    known = reason.lower().replace("_", " ")
    if "out of memory" in known:
        full = DeviceMemoryFull if step == "restore" else HostMemoryFull
        return full(f"{text}; nothing was moved: free memory first")
    if "not supported" in known or "not found" in known:
        return MissingDriver(f"{text}; {MEND}")
    if "not ready" in known or "timed out" in known or "timeout" in known:
        return BackendError(f"{text}: its work on the device did not come to an end in time; try again")
    if "permitted" in known or "permission" in known:
        return BackendError(f"{text}: run as the owner of the process or as root")
    return BackendError(text)
