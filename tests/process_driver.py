"""A checkpoint driver without a device, for tests: states in a dict, faults where a test wants them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from tsched.backends.process import State
from tsched.backends.process.driver import refusal
from tsched.backends.process.plan import STEPS
from tsched.errors import BackendError

Fault = Callable[[], None]


class ModelDriver:
    """Keeps one state a process and the calls in order. `faults` holds what happens before a call does its work."""

    def __init__(self, pids: Iterable[int] = (), *, faults: dict[tuple[str, int], Fault] | None = None) -> None:
        self.states = dict.fromkeys(pids, State.RUNNING)
        self.calls: list[tuple[str, int]] = []
        self.faults = faults or {}
        self._lock = threading.Lock()

    def state(self, pid: int) -> State | None:
        return self.states.get(pid)

    def lock(self, pid: int, timeout_s: float) -> None:
        self._move("lock", pid)

    def checkpoint(self, pid: int) -> None:
        self._move("checkpoint", pid)

    def restore(self, pid: int) -> None:
        self._move("restore", pid)

    def unlock(self, pid: int) -> None:
        self._move("unlock", pid)

    def _move(self, name: str, pid: int) -> None:
        with self._lock:
            self.calls.append((name, pid))
        self.faults.get((name, pid), lambda: None)()
        with self._lock:
            step = STEPS[name]
            if self.states.get(pid) is not step.before:
                raise BackendError(f"{name} of process {pid}, which is {self.states.get(pid)}")
            self.states[pid] = step.after


def failing(step: str, pid: int, reason: str = "CUDA_ERROR_UNKNOWN") -> Fault:
    def fail() -> None:
        raise refusal(step, pid, reason)

    return fail
