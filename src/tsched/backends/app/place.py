"""One job's engine on one node: its replicas, its process, its memory, and what a move leaves behind.

Moves are plain functions that block, for the threads of an order book; each runs an event loop of its own, so that
calls go out in parallel and are bounded. Memory is what decides whether an engine sleeps; what was acknowledged
decides only what is asked of it next.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
from anyio import CancelScope, from_thread
from anyio.lowlevel import EventLoopToken, current_token

from tsched.backends import Presence, Sizes
from tsched.backends.app.engine import Engine
from tsched.backends.app.processes import Processes
from tsched.backends.app.replicas import Replicas
from tsched.errors import BackendError, DeviceMemoryFull, ProcessGone


class Place:
    """An engine and its state here; `size_bytes` is what it held when it was last seen awake."""

    def __init__(self, engine: Engine, name: str) -> None:
        self.engine, self.name = engine, name
        self.size_bytes = 0
        self.parking = False
        self._replicas = Replicas(engine)
        self._processes = Processes(engine.pids) if engine.pids else None
        self._ended = False
        self._move: tuple[EventLoopToken, CancelScope] | None = None

    @property
    def alive(self) -> bool:
        if self._ended:
            return False
        if self.engine.alive is not None:
            return self.engine.alive()
        return self._processes is None or self._processes.alive

    def sleep(self, reserve: Callable[[Place], None]) -> None:
        """Put the engine to sleep, unless it was; `reserve` raises where the host has no room for its copies."""
        held = self._begin("park")
        if not self._replicas.awake:
            return
        if not self._replicas.asleep:
            self.size_bytes = held
            reserve(self)
        try:
            self._run(self._replicas.sleep, "park")
        finally:
            self.parking = False

    def wake(self, declared_bytes: int) -> None:
        """Wake the engine, unless it was awake."""
        held = self._begin("restore")
        if self._replicas.asleep:
            self._check_room((self.size_bytes or declared_bytes) - held)
            self._run(self._replicas.wake, "restore")

    def interrupt(self) -> None:
        """Before the end: a move that is under way is given up, and nothing of it undone."""
        if not self._can_end:
            return
        self._ended = True
        if self._move is not None:
            token, scope = self._move
            try:
                from_thread.run_sync(scope.cancel, token=token)
            except RuntimeError:  # it has ended in this moment
                return

    def end(self) -> None:
        """End the engine, by what was given for that; again where it was ended before."""
        if self.engine.end is not None:
            self.engine.end()
        elif self._processes is not None:
            self._processes.end()
        elif self.alive:
            raise BackendError(f"discard: there is no way to end {self.name}: register it with `pids` or `end`")

    @property
    def host_bytes(self) -> int:
        """Host memory that the engine needs while it sleeps."""
        return 0 if self.engine.loses_weights else max(0, self.size_bytes - self.engine.drop_bytes)

    @property
    def host_copies_bytes(self) -> int:
        """Host memory that is taken now, as the engine says it, or else as it should be."""
        if self.engine.host_copies_bytes is not None:
            return self.engine.host_copies_bytes()
        return self.host_bytes if self.parking or (self._replicas.asleep and self.alive) else 0

    def settled(self, held_bytes: int) -> bool:
        """Whether memory shows what the last move was to bring about."""
        if not self.alive:
            return held_bytes == 0
        return self._sleeps(held_bytes) == self._replicas.asleep

    def presence(self, held_bytes: int) -> Presence:
        """A state that is not on the device is parked, and at least one byte large, so that it is told from none."""
        alive = self.alive
        parked = alive and (self._replicas.asleep or self._sleeps(held_bytes))
        resident = max(0, held_bytes - self.engine.asleep_bytes) if alive else held_bytes
        return Presence(resident, max(1, self.host_bytes) if parked else 0, alive)

    def sizes(self) -> Sizes:
        size = (self._replicas.asleep and self.size_bytes) or self._present()
        drop = size if self.engine.loses_weights else min(size, self.engine.drop_bytes)
        return Sizes(save_bytes=size - drop, drop_bytes=drop)

    @property
    def _can_end(self) -> bool:
        return self.engine.end is not None or self._processes is not None

    def _sleeps(self, held_bytes: int) -> bool:
        return held_bytes <= self.engine.asleep_bytes

    def _present(self) -> int:
        return max(0, self.engine.held_bytes() - self.engine.asleep_bytes)

    def _begin(self, kind: str) -> int:
        """The bytes held now. Where there are none the engine sleeps, whatever was acknowledged before."""
        if not self.alive:
            raise ProcessGone(f"{kind}: {self.name} has exited")
        held = self._present()
        if not held:
            self._replicas.found_asleep()
        return held

    def _check_room(self, needed: int) -> None:
        if self.engine.free_bytes is not None and (free := self.engine.free_bytes()) < needed:
            raise DeviceMemoryFull(f"restore: {self.name} needs {needed} bytes, and its device has {free} left")

    def _run(self, work: Callable[[], Awaitable[None]], kind: str) -> None:
        try:
            anyio.run(self._interruptible, work)
        except BackendError as error:
            if not self.alive:
                raise ProcessGone(f"{kind}: {self.name} has exited: {error}") from error
            raise

    async def _interruptible(self, work: Callable[[], Awaitable[None]]) -> None:
        with CancelScope() as scope:
            self._move = (current_token(), scope)
            try:
                if not self._ended:
                    await work()
            finally:
                self._move = None
        if self._ended:
            raise BackendError(f"{self.name} was ended in the midst of a move")
