"""The processes of one engine: whether they live, and their end.

They are known by more than their number (`process.identity`), so that one that was given the same number later is never
signalled.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Iterable
from contextlib import suppress

from tsched.backends.process.identity import Identity, lives, look, send
from tsched.backends.process.tree import living_tree
from tsched.errors import ProcessGone

GRACE_S = 10.0


class Processes:
    """The processes that were registered, which must be running; their children are found when they are ended.

    Raises:
        ProcessGone: one of them is not there.
    """

    def __init__(self, pids: Iterable[int]) -> None:
        self._roots = tuple(_running(pid) for pid in pids)

    @property
    def alive(self) -> bool:
        """Whether all of them run: an engine that lost one cannot work."""
        return all(lives(process) for process in self._roots)

    def end(self, grace_s: float = GRACE_S) -> None:
        """Ask them to end, wait, and kill what is left of them and of their children."""
        everyone = living_tree(self._roots)
        for process in self._roots:
            send(process, signal.SIGTERM)
        _wait(everyone, grace_s)
        for process in everyone:
            send(process, signal.SIGKILL)
        _wait(everyone, grace_s)


def _running(pid: int) -> Identity:
    seen = look(pid)
    if seen is None:
        raise ProcessGone(f"engine: there is no process {pid}: register the engine once it runs")
    return seen.identity


def _wait(processes: Iterable[Identity], most_s: float) -> None:
    """Until all have ended, at most so long; a pidfd becomes readable at a process's end."""
    until = time.monotonic() + most_s
    for process in processes:
        with suppress(ProcessLookupError):
            descriptor = os.pidfd_open(process.pid)
            try:
                poll = select.poll()
                poll.register(descriptor, select.POLLIN)
                while lives(process) and (left_s := until - time.monotonic()) > 0:
                    poll.poll(left_s * 1000)
            finally:
                os.close(descriptor)
