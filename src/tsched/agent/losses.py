"""Notices that all known processes of a job have ended, and tells everybody who listens.

The kernel says when a process ends; nothing is polled. A loss is told again to whoever begins to listen, until the
job's state is discarded here or it has processes again. What follows from a loss is for others to decide.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

from msgspec import Struct

from tsched.agent.attribution import attributed
from tsched.agent.roll import Roll
from tsched.agent.state_file import Key
from tsched.backends.process import Identity
from tsched.backends.process.identity import lives
from tsched.backends.process.tree import living_tree
from tsched.rpc.background import Background


class Loss(Struct, frozen=True):
    """`number` counts the losses of this agent."""

    number: int
    job: str
    group: str
    reason: str


class Losses:
    """Watches the processes on a roll. Needs asyncio."""

    def __init__(self, roll: Roll, node: str) -> None:
        self._roll, self._node = roll, node
        self._descriptors: dict[tuple[Key, Identity], int] = {}
        self._lost: dict[Key, Loss] = {}
        self._count = 0
        self._changed = asyncio.Event()
        self._checking: dict[Key, bool] = {}
        self._background = Background()

    def begin(self) -> None:
        """Watch what an earlier agent knew."""
        for key in self._roll.jobs:
            self._look(key)

    def close(self) -> None:
        for watched in list(self._descriptors):
            self._unwatch(watched)

    def watch(self, key: Key) -> None:
        """The job has new processes, or may have new children."""
        self._lost.pop(key, None)
        self._look(key)

    def forget(self, key: Key) -> None:
        """The job's end is known."""
        self._lost.pop(key, None)
        for watched in [each for each in self._descriptors if each[0] == key]:
            self._unwatch(watched)

    def is_lost(self, key: Key) -> bool:
        return key in self._lost

    async def listen(self) -> AsyncIterator[Loss]:
        """Every loss that is not over, and then each as it comes."""
        told = 0
        while True:
            changed = self._changed
            for loss in [each for each in self._lost.values() if each.number > told]:
                told = loss.number
                yield loss
            await changed.wait()

    def _look(self, key: Key) -> None:
        """One look at a time; what happens meanwhile is one more."""
        if key in self._checking:
            self._checking[key] = True
            return
        self._checking[key] = False
        self._background.start(self._look_until_still(key))

    async def _look_until_still(self, key: Key) -> None:
        try:
            await self._check(key)
        finally:
            again = self._checking.pop(key)
        if again:
            self._look(key)

    async def _check(self, key: Key) -> None:
        """Find the job's processes anew; where there are none any more it is lost."""
        known = self._roll.known(key)
        living = await asyncio.to_thread(_living, key, known)
        if not self._roll.knows(key):
            return
        if not set(known) <= set(self._roll.known(key)):  # some were taken off meanwhile
            self._checking[key] = True
            return
        self._roll.add(key, living)
        watched = [self._watch_one(key, process) for process in living]
        if any(watched) or self._roll.living(key) or key in self._lost:
            return
        self._count += 1
        reason = f"all its processes on node {self._node} have ended"
        self._lost[key] = Loss(self._count, key[1], key[0], reason)
        self._changed.set()
        self._changed = asyncio.Event()

    def _watch_one(self, key: Key, process: Identity) -> bool:
        """Whether it lives, and is watched."""
        if (key, process) in self._descriptors:
            return True
        try:
            descriptor = os.pidfd_open(process.pid)
        except ProcessLookupError:
            return False
        if not lives(process):
            os.close(descriptor)
            return False
        self._descriptors[key, process] = descriptor
        asyncio.get_running_loop().add_reader(descriptor, self._exited, key, process)
        return True

    def _exited(self, key: Key, process: Identity) -> None:
        self._unwatch((key, process))
        self._look(key)

    def _unwatch(self, watched: tuple[Key, Identity]) -> None:
        descriptor = self._descriptors.pop(watched, None)
        if descriptor is not None:
            asyncio.get_running_loop().remove_reader(descriptor)
            os.close(descriptor)


def _living(key: Key, known: list[Identity]) -> list[Identity]:
    return living_tree([*known, *attributed(key[1], key[0])])
