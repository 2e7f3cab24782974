"""The checkpoint calls of the installed NVIDIA driver, through `cuda.core` and the `cuda.bindings` beneath it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tsched.backends.process.driver import MEND, State, refusal
from tsched.errors import MissingDriver

_FIRST_VERSION = 12080


class BindingDriver:
    """Raises `MissingDriver` where packages or driver are missing or too old. It makes no context of its own."""

    def __init__(self) -> None:
        try:
            from cuda.bindings import driver
            from cuda.core.checkpoint import Process
        except ImportError as error:
            raise MissingDriver(f"cuda-core and cuda-bindings are not installed ({error}); {MEND}") from error
        self._driver: Any = driver
        self._process: Callable[[int], Any] = Process
        self._open()

    def state(self, pid: int) -> State | None:
        code, state = self._driver.cuCheckpointProcessGetState(pid)
        if code.value:
            return None
        return State(state.name.removeprefix("CU_PROCESS_STATE_").lower())

    def lock(self, pid: int, timeout_s: float) -> None:
        self._call("lock", pid, timeout_ms=max(1, round(timeout_s * 1000)))  # 0 would be no limit

    def checkpoint(self, pid: int) -> None:
        self._call("checkpoint", pid)

    def restore(self, pid: int) -> None:
        self._call("restore", pid)

    def unlock(self, pid: int) -> None:
        self._call("unlock", pid)

    def _call(self, step: str, pid: int, **options: int) -> None:
        try:
            getattr(self._process(pid), step)(**options)
        except Exception as error:  # of a private class, or of none: the binding's own text holds the driver's answer
            raise refusal(step, pid, str(error)) from error

    def _open(self) -> None:
        try:
            (code,) = self._driver.cuInit(0)  # keeps the devices up where persistence mode is off
            _, version = self._driver.cuDriverGetVersion()
        except RuntimeError as error:
            raise MissingDriver(f"no NVIDIA driver was found ({type(error).__name__}); {MEND}") from error
        if code.value:
            raise MissingDriver(f"the NVIDIA driver does not start: {code.name}; {MEND}")
        if version < _FIRST_VERSION:
            raise MissingDriver(f"the NVIDIA driver is for CUDA {version // 1000}.{version % 1000 // 10}; {MEND}")
