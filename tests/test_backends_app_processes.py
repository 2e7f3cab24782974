"""Processes are known by more than their number, and ended with their children."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tsched.backends.app.processes import Processes
from tsched.backends.process.identity import Identity
from tsched.errors import ProcessGone

STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
POLITE = "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(7)); print('up', flush=True); time.sleep(60)"
PARENT = (
    "import subprocess, sys, time\n"
    "child = subprocess.Popen([sys.executable, '-c', sys.argv[1]], stdout=subprocess.PIPE)\n"
    "child.stdout.readline(); print(child.pid, flush=True); time.sleep(60)\n"
)

Popen = subprocess.Popen[bytes]


@pytest.fixture
def started() -> Iterator[list[Popen]]:
    made: list[Popen] = []
    yield made
    for process in made:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def start(started: list[Popen], *arguments: str) -> tuple[Popen, bytes]:
    process = subprocess.Popen([sys.executable, "-c", *arguments], stdout=subprocess.PIPE)
    started.append(process)
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def test_a_process_is_asked_to_end_before_it_is_killed(started: list[Popen]) -> None:
    process, _ = start(started, POLITE)
    processes = Processes([process.pid])
    assert processes.alive
    processes.end()
    assert process.wait(20) == 7


def test_a_process_that_does_not_end_is_killed(started: list[Popen]) -> None:
    process, _ = start(started, STUBBORN)
    Processes([process.pid]).end(grace_s=0.05)
    assert process.wait(20) == -signal.SIGKILL


def test_children_do_not_outlive_it(started: list[Popen]) -> None:
    process, child = start(started, PARENT, STUBBORN)
    Processes([process.pid]).end(grace_s=0.05)
    until = time.monotonic() + 20
    while Path(f"/proc/{int(child)}").exists() and "Z" not in Path(f"/proc/{int(child)}/stat").read_text().split():
        assert time.monotonic() < until, "the child goes on"
        time.sleep(0.01)


def test_a_process_that_has_ended_is_dead_before_anybody_waited_for_it(started: list[Popen]) -> None:
    process, _ = start(started, POLITE)
    processes = Processes([process.pid])
    process.terminate()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # a zombie from now on
    assert not processes.alive
    processes.end()


def test_an_engine_that_lost_one_process_is_dead(started: list[Popen]) -> None:
    one, _ = start(started, POLITE)
    two, _ = start(started, POLITE)
    processes = Processes([one.pid, two.pid])
    two.kill()
    two.wait()
    assert not processes.alive
    processes.end()
    assert one.wait(20) == 7


def test_a_process_that_was_given_the_same_number_later_is_left_alone(
    started: list[Popen], monkeypatch: pytest.MonkeyPatch
) -> None:
    process, _ = start(started, POLITE)
    processes = Processes([process.pid])
    monkeypatch.setattr(processes, "_roots", (Identity(process.pid, started=1),))
    assert not processes.alive
    processes.end(grace_s=0.05)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.1)


def test_a_process_that_is_not_there_cannot_be_registered() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    with pytest.raises(ProcessGone, match=f"no process {gone.pid}: register the engine once it runs"):
        Processes([gone.pid])
