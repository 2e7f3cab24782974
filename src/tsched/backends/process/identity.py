"""Who a process is: its pid and when it started, so that a pid given out again can never stand for another process.

Read from `/proc`. A zombie has exited: it runs nothing and holds nothing but its pid. Nothing here decides what is
done to a process.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

from msgspec import Struct

from tsched.errors import BackendError

_KERNEL_THREAD = 0x00200000  # PF_KTHREAD, in the flags of /proc/PID/stat
_EXITED = frozenset("ZXx")
_STOPPED = "T"


class Identity(Struct, frozen=True, order=True):
    """A process for as long as the machine runs: `started` is in clock ticks since it booted."""

    pid: int
    started: int


class Seen(Struct, frozen=True):
    """A process that lives, as `/proc` shows it at one moment."""

    identity: Identity
    parent: int
    stopped: bool
    kernel: bool


def look(pid: int) -> Seen | None:
    """The process that has this pid now; None where it has exited."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text[text.rindex(")") + 2 :].split()  # the name before it may hold blanks and brackets
    if fields[0] in _EXITED and int(fields[17]) <= 1:  # a first thread may end before the others
        return None
    return Seen(
        identity=Identity(pid, int(fields[19])),
        parent=int(fields[1]),
        stopped=fields[0] == _STOPPED,
        kernel=bool(int(fields[6]) & _KERNEL_THREAD),
    )


def lives(process: Identity) -> bool:
    """Whether this very process is there and has not exited."""
    seen = look(process.pid)
    return seen is not None and seen.identity == process


def stopped(process: Identity) -> bool:
    """Whether it is stopped by a signal, or gone."""
    seen = look(process.pid)
    return seen is None or seen.identity != process or seen.stopped


def send(process: Identity, number: signal.Signals) -> bool:
    """Send a signal to this very process; False where it has exited.

    The pidfd is opened before the start time is compared, so the signal goes to what was compared, or to nobody.
    """
    try:
        pidfd = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    try:
        if not lives(process):
            return False
        signal.pidfd_send_signal(pidfd, number)
    except ProcessLookupError:
        return False
    except PermissionError as error:
        raise BackendError(
            f"process {process.pid} may not be sent {number.name}: run as its owner or as root"
        ) from error
    finally:
        os.close(pidfd)
    return True
