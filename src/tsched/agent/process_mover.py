"""Whole processes of a job, found by the roll and moved by the process backend.

A job that never had a process here has nothing to move: it may have had its turn before it started its workers. One
whose processes have all ended is dead.
"""

from __future__ import annotations

from contextlib import suppress

import anyio
from anyio import to_thread

from tsched.agent.attribution import attributed
from tsched.agent.losses import Losses
from tsched.agent.roll import Roll
from tsched.agent.state_file import Key, Place
from tsched.backends import Order, Presence, Sizes
from tsched.backends.process import Identity, ProcessBackend
from tsched.backends.process.identity import lives
from tsched.errors import BackendError, Invalid, ProcessGone
from tsched.rpc.processes import Process


class ProcessMover:
    """A backend for the processes on a roll. Needs asyncio."""

    suspendable = True

    def __init__(self, backend: ProcessBackend, roll: Roll, losses: Losses) -> None:
        self._backend, self._roll, self._losses = backend, roll, losses
        self._enlisted: dict[Place, list[Identity]] = {}
        self._registering = anyio.Lock()

    async def park(self, order: Order) -> None:
        if await self._enlist(order.group, order.node, order.job, search=True):
            await self._backend.park(order)

    async def restore(self, order: Order) -> None:
        if await self._enlist(order.group, order.node, order.job):
            await self._backend.restore(order)

    async def discard(self, order: Order) -> None:
        key = order.group, order.job
        with suppress(ProcessGone):
            await self._enlist(order.group, order.node, order.job, search=True)
        self._losses.forget(key)
        await self._backend.discard(order)
        self._roll.forget(key)

    async def probe(self, group: str, node: str, job: str, *, deadline_us: int) -> Presence:
        try:
            await self._enlist(group, node, job)
        except ProcessGone:
            return Presence(alive=False)
        return await self._backend.probe(group, node, job, deadline_us=deadline_us)

    async def sizes(self, group: str, node: str, job: str) -> Sizes:
        return await self._backend.sizes(group, node, job) if await self._enlist(group, node, job) else Sizes(0)

    async def register(self, group: str, node: str, job: str, processes: list[Identity]) -> None:
        """These are of the job from now on, before its first order; raises `BackendError` where one cannot be."""
        self._roll.add((group, job), processes)
        await self._enlist(group, node, job)

    def unregister(self, group: str, node: str, job: str, process: Process) -> None:
        """It is of the job no more; the job's other processes stay."""
        self._roll.remove((group, job), process)
        place = group, node, job
        if place in self._enlisted:
            self._backend.unregister(*place)  # at the next order those that are left are registered again
            del self._enlisted[place]

    async def _enlist(self, group: str, node: str, job: str, *, search: bool = False) -> bool:
        """Make all that is known of the job known to the backend; whether there is, or was, anything.

        Raises:
            ProcessGone: there was, before this agent began, and it has ended.
            BackendError: one of the processes may not be moved.
        """
        key, place = (group, job), (group, node, job)
        if search or not self._roll.knows(key):
            await self._search(key)
        living = self._roll.living(key)
        async with self._registering:
            new = [process for process in living if process not in self._enlisted.get(place, ())]
            if new:
                await self._register(place, new)
        if place not in self._enlisted and self._roll.knows(key):
            raise ProcessGone(f"job {job!r} on {group}/{node}: all its processes have exited")
        return place in self._enlisted

    async def _search(self, key: Key) -> None:
        found = await to_thread.run_sync(attributed, key[1], key[0])
        if self._roll.add(key, found):
            self._losses.watch(key)

    async def _register(self, place: Place, processes: list[Identity]) -> None:
        group, node, job = place
        pids = [process.pid for process in processes]
        try:
            await to_thread.run_sync(self._backend.register, group, node, job, pids)
        except ProcessGone:  # in this moment; the others are found at the next order
            pids = []
        except Invalid as error:
            raise BackendError(f"job {job!r} on {group}/{node}: {error}") from error
        before = [process for process in self._enlisted.get(place, ()) if lives(process)]
        if pids or before:
            self._enlisted[place] = [*before, *processes] if pids else before
