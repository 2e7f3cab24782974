"""Calls that may block, each in a thread of its own, waited for so long and no longer.

A call that is given up may still come to its end. Then it is undone at once in the same thread, and until that is over
no other call begins for that process: a restore that ends too late does not stay behind in device memory, and never
runs beside the next one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from tsched.backends.process.identity import Identity
from tsched.errors import BackendError

Act = Callable[[Identity], None]


class Late(BackendError):
    """A call did not end in time. It goes on, and is undone when it ends."""


class _Call(threading.Thread):
    def __init__(self, process: Identity, act: Act, undo: Act) -> None:
        super().__init__(name=f"tsched call {process.pid}", daemon=True)
        self.process, self._act, self._undo = process, act, undo
        self.error: BackendError | None = None
        self.ended = threading.Event()
        self._lock = threading.Lock()
        self._given_up = False

    def run(self) -> None:
        self.error = _attempt(self._act, self.process)
        with self._lock:
            late = self._given_up
            self.ended.set()
        if late and self.error is None:
            _attempt(self._undo, self.process)

    def give_up(self) -> bool:
        """Whether it is still under way; it will undo itself then."""
        with self._lock:
            self._given_up = not self.ended.is_set()
            return self._given_up


class Calls:
    """The calls under way, at most one for each process."""

    def __init__(self) -> None:
        self._last: dict[Identity, _Call] = {}

    def busy(self, process: Identity) -> bool:
        last = self._last.get(process)
        return last is not None and last.is_alive()

    def settle(self, processes: Sequence[Identity], limit_s: float) -> None:
        """Wait until no call is under way for them; raises `BackendError` where that takes longer."""
        until = time.monotonic() + limit_s
        for process in processes:
            if not self._wait_for_last(process, until):
                raise Late(f"process {process.pid}: an earlier call is still in the driver after {limit_s:g} s")

    def each(
        self, step: str, processes: Sequence[Identity], act: Act, *, undo: Act, limit_s: float
    ) -> dict[Identity, BackendError]:
        """Call `act` for all of them at the same time; what failed, or did not end within `limit_s`.

        `undo` is called for one that succeeds later than that. None of them may be busy.
        """
        until = time.monotonic() + limit_s
        failures: dict[Identity, BackendError] = {}
        for call in [self._begin(process, act, undo) for process in processes]:
            call.ended.wait(max(0.0, until - time.monotonic()))
            late = Late(f"{step} of process {call.process.pid} did not end within {limit_s:g} s")
            error = late if call.give_up() else call.error
            if error is not None:
                failures[call.process] = error
        self._last = {process: call for process, call in self._last.items() if call.is_alive()}
        return failures

    def _wait_for_last(self, process: Identity, until: float) -> bool:
        last = self._last.get(process)
        if last is not None:
            last.join(max(0.0, until - time.monotonic()))
        return not self.busy(process)

    def _begin(self, process: Identity, act: Act, undo: Act) -> _Call:
        call = self._last[process] = _Call(process, act, undo)
        call.start()
        return call


def _attempt(act: Act, process: Identity) -> BackendError | None:
    try:
        act(process)
    except BackendError as error:
        return error
    except Exception as error:  # a driver's binding may raise anything; it concerns this process alone
        return BackendError(f"process {process.pid}: {str(error) or type(error).__name__}")
    return None
