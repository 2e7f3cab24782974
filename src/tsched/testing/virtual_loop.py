"""An asyncio loop in virtual time: nothing ever waits, and every run of a program is the same.

`time()` is a field and no file is polled. When no callback is ready the loop takes exactly one timer, the first by
(time, order of creation), jumps to its time and runs it and all that follows from it before it takes the next. Times
are rounded to whole microseconds, as the engine counts them, so that a run meets its timers in the order in
which a simulation of it does.

    anyio.run(main, backend_options={"loop_factory": VirtualLoop})

No sockets, no threads and no subprocesses: what would only end from outside is a `Deadlock` here.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import Context
from heapq import heappop, heappush
from typing import Any, TypeVar, TypeVarTuple, Unpack

import anyio

from tsched.errors import Deadlock

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

SPIN_LIMIT = 1_000_000


class VirtualLoop(asyncio.SelectorEventLoop):
    """See the module's text; `now_us` is the present virtual time."""

    _ready: deque[asyncio.Handle]
    _stopping: bool

    def __init__(self) -> None:
        super().__init__()
        self.now_us = 0
        self._time = 0.0
        self._made = 0
        self._turns = 0
        self._timers: list[tuple[int, int, asyncio.TimerHandle]] = []

    def time(self) -> float:
        return self._time

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        if when == math.inf:
            return timer
        self._made += 1
        heappush(self._timers, (max(round(when * 1_000_000), self.now_us), self._made, timer))
        return timer

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self._time + delay, callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """A cancelled timer stays in the heap until its time comes, and is dropped there."""

    def _run_once(self) -> None:
        ready = self._ready
        if ready:
            self._turns += 1
            if self._turns > SPIN_LIMIT:
                self._turns = 0
                raise Deadlock(f"tasks keep each other busy and time stands still at {self.now_us} us")
        elif not self._stopping:
            self._jump()
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle.cancelled():
                handle._run()

    def _jump(self) -> None:
        """Go on to the next timer, and make it the only thing that is ready."""
        self._turns = 0
        while self._timers:
            when_us, _, timer = heappop(self._timers)
            if not timer.cancelled():
                self.now_us = when_us
                # Rounded down, the time would lie before the deadline of who asks whether it has come.
                self._time = max(self._time, when_us / 1_000_000, timer.when())
                self._ready.append(timer)
                return
        waiting = sorted(task.get_name() for task in asyncio.all_tasks(self) if not task.done())
        raise Deadlock(
            f"virtual time cannot go on at {self.now_us} us: no timer is set and {len(waiting)} tasks wait: "
            + ", ".join(waiting[:8])
            + (", …" if len(waiting) > 8 else "")
        )


def run_virtual(main: Callable[[Unpack[Ts]], Awaitable[T]], *args: *Ts) -> T:
    """Run an async function in virtual time and return what it returns.

    Raises:
        Deadlock: every task waits and no timer is set.
    """
    options: dict[str, Any] = {"loop_factory": VirtualLoop}
    return anyio.run(main, *args, backend="asyncio", backend_options=options)
