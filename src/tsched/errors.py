"""Every error that tsched raises, one class a kind, under one root.

A leaf also inherits the built-in class that fits, so callers may catch either. Text names the thing,
the state that it was in, and what to do about it. All of them survive pickling.
"""

from __future__ import annotations


class TschedError(Exception):
    """Root of all errors of this package."""


class Invalid(TschedError, ValueError):
    """A value, scenario, trace, config or log is wrong; the text says where and what would be right."""


class UnknownGroup(TschedError, LookupError):
    """A group was named that does not exist."""


class UnknownJob(TschedError, LookupError):
    """A job was named that is not registered."""


class UnknownPlugin(TschedError, LookupError):
    """No policy or backend of this name is installed."""


class DuplicateJob(TschedError, ValueError):
    """A job of this name is registered already."""


class AcquireRefused(TschedError, RuntimeError):
    """The scheduler will not grant this request; `code` says which rule refused it."""

    def __init__(self, detail: str, code: str = "") -> None:
        super().__init__(detail, code)
        self.detail = detail
        self.code = code

    def __str__(self) -> str:
        return self.detail


class NeverFits(AcquireRefused):
    """What the job needs is more than the group has, even alone."""


class WouldDeadlock(AcquireRefused):
    """Granting could never happen: the wait-for graph has a cycle, which the text names."""


class JobQuarantined(AcquireRefused):
    """A park or restore of this job failed for good; an operator must readmit it."""


class LeaseLost(TschedError, RuntimeError):
    """The lease ended before its holder released it: expired, revoked, or its job was lost."""


class SchedulerClosed(TschedError, RuntimeError):
    """The scheduler is shutting down and takes no more requests."""


class BackendError(TschedError, RuntimeError):
    """A backend could not park, restore, discard or probe."""


class StaleToken(BackendError):
    """A command carried a smaller fencing token than one already seen."""


class HostMemoryFull(BackendError, MemoryError):
    """Parking would exceed the host memory limit; nothing was moved."""


class DeviceMemoryFull(BackendError, MemoryError):
    """The device has no room for this; what was there before is as it was."""


class UnknownRegion(BackendError, LookupError):
    """A region was named that the job did not register."""


class ProcessGone(BackendError, ProcessLookupError):
    """The job's process has exited."""


class MissingExtra(TschedError, ImportError):
    """A part of tsched needs a package that is not installed; the text says which extra brings it."""


class MissingDriver(BackendError, OSError):
    """The device's driver is not there, or too old for what was asked of it."""


class ChannelClosed(TschedError, ConnectionError):
    """The connection between a worker and its scheduler has ended."""


class JournalError(TschedError, RuntimeError):
    """A decision log cannot be written or read."""


class JournalStalled(JournalError):
    """A decision log cannot be written just now: the disk is full or busy. Trying again may help."""


class Deadlock(TschedError, RuntimeError):
    """Virtual time cannot advance: every task waits and no timer is set."""
