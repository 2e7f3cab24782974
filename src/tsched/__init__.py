"""Time-slicing of post-training jobs over shared accelerators: one scheduling engine, run live and simulated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tsched.errors import (
    AcquireRefused,
    BackendError,
    Deadlock,
    DuplicateJob,
    HostMemoryFull,
    Invalid,
    JobQuarantined,
    JournalError,
    LeaseLost,
    NeverFits,
    SchedulerClosed,
    StaleToken,
    TschedError,
    UnknownGroup,
    UnknownJob,
    UnknownPlugin,
    WouldDeadlock,
)
from tsched.model import Group, Job, seconds

if TYPE_CHECKING:
    from tsched.lease import Lease
    from tsched.scheduler import Scheduler
    from tsched.sim.simulator import simulate

__all__ = [
    "AcquireRefused",
    "BackendError",
    "Deadlock",
    "DuplicateJob",
    "Group",
    "HostMemoryFull",
    "Invalid",
    "Job",
    "JobQuarantined",
    "JournalError",
    "Lease",
    "LeaseLost",
    "NeverFits",
    "Scheduler",
    "SchedulerClosed",
    "StaleToken",
    "TschedError",
    "UnknownGroup",
    "UnknownJob",
    "UnknownPlugin",
    "WouldDeadlock",
    "seconds",
    "simulate",
]

# Imported when first named: who only simulates needs no event loop, and who only schedules no simulator.
_LATER = {"Lease": "tsched.lease", "Scheduler": "tsched.scheduler", "simulate": "tsched.sim.simulator"}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LATER[name]), name)
