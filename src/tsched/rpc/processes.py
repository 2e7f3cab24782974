"""Which process a worker is: its number, when it began, and the host on which both mean something.

A number alone is not enough, since the next process may get it. Nothing here ends a process.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import NamedTuple

DEAD = frozenset("ZX")
STOPPED = frozenset("Tt")


class Process(NamedTuple):
    """`started` is in the kernel's clock ticks since boot, 0 where it is not known."""

    pid: int
    started: int
    host: str


@cache
def this_host() -> str:
    """The boot and the process namespace: where they are the same, process numbers mean the same."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return ""


def this_process() -> Process:
    return process_of_pid(os.getpid())


def process_of_pid(pid: int) -> Process:
    """The process of this host that has this number now."""
    state = _stat(pid)
    return Process(pid, state[1] if state else 0, this_host())


def known(process: Process) -> bool:
    """Whether this host can say if it lives."""
    return bool(process.host and process.started) and process.host == this_host()


def alive(process: Process) -> bool:
    """Whether a known process has not exited; frozen is alive."""
    state = _stat(process.pid)
    return state is not None and state[1] == process.started and state[0] not in DEAD


def stopped(process: Process) -> bool:
    """Whether it is frozen by a signal or a debugger: it cannot speak, and is not dead."""
    state = _stat(process.pid)
    return state is not None and state[1] == process.started and state[0] in STOPPED


def exit_descriptor(process: Process) -> int | None:
    """A descriptor that becomes readable when the process exits; None where there is none to be had."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except (OSError, OverflowError):  # the number is what somebody said
        return None
    if alive(process):
        return descriptor
    os.close(descriptor)
    return None


def _stat(pid: int) -> tuple[str, int] | None:
    """The state's letter and the start time; the name before them may hold anything, but no later parenthesis does."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return fields[0], int(fields[19])
