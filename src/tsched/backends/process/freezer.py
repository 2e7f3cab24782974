"""Freezing a tree of processes without a device: nothing of it runs until it is thawed.

New children that are born while the tree freezes are caught: it is frozen when two looks in a row find the same
processes, all of them at rest. What cannot be frozen in time is thawed again.
"""

from __future__ import annotations

import signal
import time
from typing import Protocol

from tsched.backends.process.identity import Identity, lives, send, stopped
from tsched.backends.process.tree import Members
from tsched.errors import BackendError

_PAUSE_S = 0.002


class Freezer(Protocol):
    """Stops and continues whatever `members` finds."""

    def freeze(self, members: Members, limit_s: float) -> None:
        """Raises `BackendError` where it does not come to rest in time; then it runs as before."""
        ...

    def thaw(self, members: Members, limit_s: float) -> None:
        """Raises `BackendError` where something does not run again in time; then it is at rest as before."""
        ...

    def frozen(self, process: Identity) -> bool:
        """Whether this process is at rest, or gone."""
        ...

    def strays(self) -> list[Identity]:
        """Processes of the job that the freezer knows by itself, whoever their parents are."""
        ...

    def close(self) -> None:
        """Leave nothing behind; called when no process is left."""
        ...


class SignalFreezer:
    """With SIGSTOP and SIGCONT. Parents and debuggers of the tree may notice."""

    def freeze(self, members: Members, limit_s: float) -> None:
        until = time.monotonic() + limit_s
        try:
            self._stop(members, until)
        except BackendError:
            self._continue(members())
            raise

    def thaw(self, members: Members, limit_s: float) -> None:
        processes = members()
        try:
            self._continue(processes)
            _await([each for each in processes if lives(each)], stopped_wanted=False, until=time.monotonic() + limit_s)
        except BackendError:
            for process in processes:
                send(process, signal.SIGSTOP)
            raise

    def frozen(self, process: Identity) -> bool:
        return stopped(process)

    def strays(self) -> list[Identity]:
        return []

    def close(self) -> None:
        return

    def _stop(self, members: Members, until: float) -> None:
        before: list[Identity] | None = None
        while (processes := members()) != before or not all(map(stopped, processes)):
            for process in processes:
                send(process, signal.SIGSTOP)
            _await(processes, stopped_wanted=True, until=until)
            before = processes

    def _continue(self, processes: list[Identity]) -> None:
        for process in processes:
            send(process, signal.SIGCONT)


def _await(processes: list[Identity], *, stopped_wanted: bool, until: float) -> None:
    """Wait until all are as wanted. Who has exited is."""
    for process in processes:
        while lives(process) and stopped(process) is not stopped_wanted:
            if time.monotonic() > until:
                wanted = "stopped" if stopped_wanted else "run again"
                raise BackendError(
                    f"process {process.pid} has not {wanted} in time: it waits in the kernel, for a disk or a device"
                )
            time.sleep(_PAUSE_S)
