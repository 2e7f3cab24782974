"""The checkpoint calls through NVIDIA's `cuda-checkpoint` program, where the Python packages are not installed."""

from __future__ import annotations

import shutil
import subprocess

from tsched.backends.process.driver import MEND, State, refusal
from tsched.backends.process.limits import Limits
from tsched.errors import MissingDriver

_PROGRAM = "cuda-checkpoint"
_ANSWER_S = 10.0


class BinaryDriver:
    """Runs the program once a call, for a bounded time. Raises `MissingDriver` where it is not on the PATH."""

    def __init__(self, limits: Limits | None = None) -> None:
        found = shutil.which(_PROGRAM)
        if found is None:
            raise MissingDriver(f"{_PROGRAM} is not on the PATH; {MEND}")
        self._program = found
        self._limits = limits or Limits()

    def state(self, pid: int) -> State | None:
        ended = self._run("state", pid, ["--get-state"], _ANSWER_S)
        word = ended.stdout.strip().lower()
        return State(word) if ended.returncode == 0 and word in set(State) else None

    def lock(self, pid: int, timeout_s: float) -> None:
        timeout_ms = max(1, round(timeout_s * 1000))
        self._act("lock", pid, timeout_s + _ANSWER_S, "--timeout", str(timeout_ms))

    def checkpoint(self, pid: int) -> None:
        self._act("checkpoint", pid, self._limits.checkpoint_s)

    def restore(self, pid: int) -> None:
        self._act("restore", pid, self._limits.restore_s)

    def unlock(self, pid: int) -> None:
        self._act("unlock", pid, self._limits.unlock_s)

    def _act(self, step: str, pid: int, limit_s: float, *options: str) -> None:
        ended = self._run(step, pid, ["--action", step, *options], limit_s)
        if ended.returncode:
            raise refusal(step, pid, (ended.stderr or ended.stdout).strip() or f"exit status {ended.returncode}")

    def _run(self, step: str, pid: int, options: list[str], limit_s: float) -> subprocess.CompletedProcess[str]:
        command = [self._program, *options, "--pid", str(pid)]
        try:
            return subprocess.run(command, capture_output=True, text=True, timeout=limit_s, stdin=subprocess.DEVNULL)
        except subprocess.TimeoutExpired as error:
            raise refusal(step, pid, f"{_PROGRAM} timed out after {limit_s:g} s") from error
        except OSError as error:
            raise MissingDriver(f"{self._program} cannot be run ({error}); {MEND}") from error
