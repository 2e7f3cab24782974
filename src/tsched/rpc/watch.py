"""Tells when a worker's process has exited, or its time to come back is over.

Only a process of this host, and known to be, can be watched; of another one nothing is seen but its stream. Nothing
here decides what either means.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from tsched.rpc import processes
from tsched.rpc.session import Session


class Watch:
    """The exit descriptors and the timers of one scheduler's workers.

    Args:
        grace_s: how long a worker without a stream may take to come back.
        exited: called once for a worker whose process is no more.
        missed: called for a worker that did not come back in time.
    """

    def __init__(self, grace_s: float, exited: Callable[[Session], None], missed: Callable[[Session], None]) -> None:
        self.grace_s = grace_s
        self._exited, self._missed = exited, missed
        self._descriptors: dict[Session, int] = {}
        self._timers: dict[Session, asyncio.TimerHandle] = {}

    def begin(self, session: Session) -> None:
        """Watch the worker's process, where it can be."""
        if not session.local or session in self._descriptors:
            return
        descriptor = processes.exit_descriptor(session.process)
        if descriptor is not None:
            self._descriptors[session] = descriptor
            asyncio.get_running_loop().add_reader(descriptor, self._exited, session)

    def end(self, session: Session) -> None:
        self.stay(session)
        descriptor = self._descriptors.pop(session, None)
        if descriptor is not None:
            asyncio.get_running_loop().remove_reader(descriptor)
            os.close(descriptor)

    def give_grace(self, session: Session) -> None:
        """It has no stream: it must come back in time, unless it has exited already."""
        if session.local and not processes.alive(session.process):
            self._exited(session)
            return
        self.stay(session)
        self._timers[session] = asyncio.get_running_loop().call_later(self.grace_s, self._missed, session)

    def stay(self, session: Session) -> None:
        """It is here."""
        timer = self._timers.pop(session, None)
        if timer is not None:
            timer.cancel()
