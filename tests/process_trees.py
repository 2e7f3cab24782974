"""Real process trees for tests of the process backend: a parent, and its child, which holds a state and answers."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from tsched.backends.process import ProcessBackend
from tsched.backends.process.identity import Identity, look
from tsched.errors import BackendError

Key = tuple[str, str, str]

_STATE = """
import os, sys
state = bytearray(os.urandom(int(sys.argv[1])))
for line in sys.stdin:
    if line == "work\\n":
        for index in range(0, len(state), 97):
            state[index] = (state[index] + 1) % 256
    sys.stdout.write(state.hex() + "\\n")
    sys.stdout.flush()
"""
_PARENT = """
import os, subprocess, sys
subprocess.run([sys.executable, "-I", "-S", "-c", sys.argv[2], sys.argv[1]])
"""
FORKER = """
import os, sys, time
for number in range({times}):
    if number == 5:
        print("up", flush=True)
    if os.fork() == 0:
        time.sleep(600)
    time.sleep({pause_s})
time.sleep(600)
"""


def python(*arguments: str, environment: dict[str, str] | None = None) -> subprocess.Popen[str]:
    """A bare interpreter in a session of its own."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
        start_new_session=True,
        env=os.environ | (environment or {}),
    )


@contextmanager
def closing(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    """Ends the process and its session at the end."""
    try:
        yield process
    finally:
        end(process)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()


def end(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, 9)
    process.wait()


def identity(pid: int) -> Identity:
    seen = look(pid)
    assert seen is not None, f"process {pid} has exited"
    return seen.identity


class Job:
    """A parent whose child holds a state. `warm` brings in every page that it will ever touch."""

    def __init__(self, size_bytes: int = 64) -> None:
        self.parent = python(_PARENT, str(size_bytes), _STATE)
        self.warm()

    @property
    def pid(self) -> int:
        return self.parent.pid

    def warm(self) -> None:
        for _ in range(3):
            self.ask("work", patience_s=30)

    def ask(self, word: str = "read", patience_s: float = 0.2) -> bytes:
        """What the state is, after work or without; raises `BackendError` where nothing answers in time."""
        assert self.parent.stdin is not None
        assert self.parent.stdout is not None
        with suppress(BrokenPipeError):
            self.parent.stdin.write(word + "\n")
        return self.answer(patience_s)

    def answer(self, patience_s: float) -> bytes:
        assert self.parent.stdout is not None
        if not select.select([self.parent.stdout], [], [], patience_s)[0]:
            raise BackendError(f"job of process {self.pid} does not answer")
        return bytes.fromhex(self.parent.stdout.readline())

    def kill(self) -> None:
        end(self.parent)

    def close(self) -> None:
        with closing(self.parent):
            pass


class ProcessRig(ProcessBackend):
    """The backend with jobs on it, for `check_backend`."""

    jobs: list[Job]
    _here: dict[Key, Job]

    def allocate(self, group: str, node: str, job: str, size_bytes: int) -> None:
        made = Job(size_bytes)
        self.open_jobs().append(made)
        self._here[group, node, job] = made
        self.register(group, node, job, [made.pid])

    def open_jobs(self) -> list[Job]:
        if not hasattr(self, "jobs"):
            self.jobs, self._here = [], {}
        return self.jobs

    def close(self) -> None:
        for job in self.open_jobs():
            job.close()

    def work(self, group: str, node: str, job: str) -> None:
        self._here[group, node, job].ask("work", patience_s=10)

    def contents(self, group: str, node: str, job: str) -> bytes:
        return self._here[group, node, job].ask(patience_s=10)

    def kill(self, group: str, node: str, job: str) -> None:
        self._here[group, node, job].kill()


@contextmanager
def jobs(count: int = 1, size_bytes: int = 64) -> Iterator[Sequence[Job]]:
    made = [Job(size_bytes) for _ in range(count)]
    try:
        yield made
    finally:
        for job in made:
            job.close()
