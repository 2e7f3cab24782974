"""A process is itself, and no other with its number."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time

from tsched.rpc.processes import (
    Process,
    alive,
    exit_descriptor,
    known,
    process_of_pid,
    stopped,
    this_host,
    this_process,
)


def of(child: subprocess.Popen[bytes]) -> Process:
    return process_of_pid(child.pid)


def test_this_process_lives_and_another_with_its_number_does_not() -> None:
    here = this_process()
    assert known(here)
    assert alive(here)
    assert not alive(here._replace(started=here.started + 1))
    assert exit_descriptor(here._replace(started=here.started + 1)) is None
    assert not known(here._replace(host="elsewhere"))
    assert not known(here._replace(started=0))


def test_an_exit_is_seen_before_the_parent_has_asked_for_it() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        process = of(child)
        descriptor = exit_descriptor(process)
        assert descriptor is not None
        assert not select.select([descriptor], [], [], 0)[0]
        child.kill()
        assert select.select([descriptor], [], [], 20)[0]
        os.close(descriptor)
        assert not alive(process)
        assert exit_descriptor(process) is None


def test_a_frozen_process_is_stopped_and_alive() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        process = of(child)
        assert not stopped(process)
        child.send_signal(signal.SIGSTOP)
        until = time.monotonic() + 20
        while not stopped(process) and time.monotonic() < until:
            time.sleep(0.005)
        assert stopped(process)
        assert alive(process)
        child.kill()


def test_a_number_that_no_process_can_have_is_none() -> None:
    nobody = Process(2**32 - 1, 1, this_host())
    assert not alive(nobody)
    assert exit_descriptor(nobody) is None
