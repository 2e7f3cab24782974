"""A process with a model on the device, which does what it is told on standard input, or takes turns as a worker.

python -m benchmarks.gpu_check.child SCALE
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.gpu_check.outcome import Failed
from benchmarks.gpu_check.scale import Scale

ROOT = Path(__file__).resolve().parents[2]
ANSWER_S = 120.0


class Child:
    """The parent's end: asks, and waits for the answer. The process is killed when the body ends, whatever it does."""

    def __init__(self, scale: Scale, seed: int = 0) -> None:
        command = [sys.executable, "-m", "benchmarks.gpu_check.child", json.dumps(asdict(scale)), str(seed)]
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self.pid = self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):  # of what it was told and did not read
                    pipe.close()

    def ask(self, deed: str, **arguments: object) -> Any:
        """What it answers. Raises `Failed` where it fails, dies, or says nothing for two minutes."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._killed_when_late():
            try:
                print(json.dumps([deed, arguments]), file=self._process.stdin, flush=True)
                line = self._process.stdout.readline()
            except BrokenPipeError:
                line = ""
        if not line:
            status = self._process.wait()
            raise Failed(f"process {self.pid} ended with {_status(status)} instead of an answer to {deed!r}")
        answer = json.loads(line)
        if isinstance(answer, dict) and "failure" in answer:
            raise Failed(f"process {self.pid}, {deed}: {answer['failure']}")
        return answer

    @contextmanager
    def _killed_when_late(self) -> Iterator[None]:
        alarm = threading.Timer(ANSWER_S, self._process.kill)
        alarm.start()
        try:
            yield
        finally:
            alarm.cancel()


def _status(status: int) -> str:
    return signal.Signals(-status).name if status < 0 else f"status {status}"


class Told:
    """The child's end; torch is imported with the first deed that needs it."""

    def __init__(self, scale: Scale, seed: int) -> None:
        self._scale, self._seed = scale, seed
        self._trainee: Any = None
        self._held: Any = None
        self.deeds: dict[str, Callable[..., object]] = {
            "import": self.import_torch,
            "build": self.build,
            "step": lambda: self._trainee.step(),
            "checksum": lambda: self._trainee.checksum(),
            "hold": self.hold,
            "free": self.free,
            "work": self.work,
        }

    def import_torch(self) -> str:
        import torch

        torch.set_num_threads(1)
        import benchmarks.gpu_check.trainee  # noqa: F401 so that the first turn does not wait for it

        return torch.__version__

    def build(self) -> float:
        """The model, after a first step that makes the optimizer's state."""
        from benchmarks.gpu_check.trainee import Trainee

        self._trainee = Trainee(self._scale, self._seed)
        return float(self._trainee.step())

    def hold(self, size_bytes: int) -> int:
        """So much of the device, until `free`; with nothing but a context where that is 0."""
        import torch

        self._held = torch.ones(max(1, size_bytes), dtype=torch.uint8, device=self._scale.device)
        return size_bytes

    def free(self) -> str:
        from benchmarks.gpu_check.device_bytes import free_caches

        device = self._held.device
        self._held = None
        free_caches(device)
        return "free"

    def work(self, address: str, job: str, arena: str) -> dict[str, object]:
        """Take turns over the worker channel, with regions; the arena's file stands for a device where it is a CPU."""
        from benchmarks.gpu_check.channel_worker import take_turns

        return take_turns(self._scale, self._seed, address, job, arena)


def main() -> None:
    told = Told(Scale(**json.loads(sys.argv[1])), int(sys.argv[2]))
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print is no answer
    for line in sys.stdin:
        deed, arguments = json.loads(line)
        try:
            answer: object = told.deeds[deed](**arguments)
        except Exception as error:
            answer = {"failure": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
