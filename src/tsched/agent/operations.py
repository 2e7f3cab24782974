"""Moves that were begun and are asked after by number: each under way, complete or failed.

Those that have ended are remembered, the newest of them. Asking for what is under way already is the same operation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from uuid import uuid4

from tsched.agent.limits import TooMany
from tsched.rpc.background import Background


@dataclass(slots=True)
class Operation:
    """One move. `storage_bytes` is what the host holds of the state after it, `device_bytes` what was on the device."""

    id: str
    began_s: float
    ended_s: float | None = None
    error: str | None = None
    storage_bytes: int | None = None
    device_bytes: int | None = None

    def elapsed_ms(self, now_s: float) -> int:
        return round(1000 * ((now_s if self.ended_s is None else self.ended_s) - self.began_s))


Work = Callable[[Operation], Awaitable[None]]


@dataclass(slots=True)
class Operations:
    """Those of one agent; `most` is how many may be under way, and how many ended ones are remembered."""

    most: int
    _all: dict[str, Operation] = field(default_factory=dict)
    _under_way: dict[object, Operation] = field(default_factory=dict)
    _background: Background = field(default_factory=Background)

    def begin(self, what: object, work: Work) -> Operation:
        """Do the work, unless `what` is under way. Raises `TooMany`."""
        same = self._under_way.get(what)
        if same is not None:
            return same
        if len(self._under_way) >= self.most:
            raise TooMany(f"{self.most} operations are under way, and no more are begun: limits.operations")
        operation = Operation(uuid4().hex, _now_s())
        self._all[operation.id] = self._under_way[what] = operation
        self._background.start(self._run(what, operation, work))
        return operation

    def get(self, id: str) -> Operation | None:
        """None where it never was, or ended long ago."""
        return self._all.get(id)

    async def _run(self, what: object, operation: Operation, work: Work) -> None:
        try:
            await work(operation)
        except Exception as error:  # a backend is foreign code: it concerns this operation alone
            operation.error = str(error) or type(error).__name__
        finally:
            operation.ended_s = _now_s()
            del self._under_way[what]
            self._forget()

    def _forget(self) -> None:
        ended = [id for id, each in self._all.items() if each.ended_s is not None]
        for id in ended[: -self.most]:
            del self._all[id]


def _now_s() -> float:
    return asyncio.get_running_loop().time()
