"""A process is its pid and its start, and a signal goes to that very process or to nobody."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.process_trees import closing, identity, jobs, python
from tsched.backends.process.identity import Identity, lives, look, send, stopped
from tsched.backends.process.memory import contexts_by_open_files, host_bytes
from tsched.backends.process.tree import ancestry, living_tree


def test_a_process_is_told_from_the_one_that_had_its_pid_before() -> None:
    here = identity(os.getpid())
    assert lives(here)
    assert not lives(Identity(here.pid, here.started - 1))


def test_a_zombie_has_exited() -> None:
    with closing(python("pass")) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert Path(f"/proc/{process.pid}").exists()
        assert look(process.pid) is None


def test_a_name_with_brackets_and_blanks_does_not_confuse() -> None:
    rename = "open('/proc/self/comm', 'w').write(') R 1 (x y'); print('ready', flush=True); input()"
    with closing(python(rename)) as process:
        assert process.stdout is not None
        process.stdout.readline()
        seen = look(process.pid)
        assert seen is not None
        assert seen.parent == os.getpid()


def test_a_signal_reaches_its_process_and_no_stranger() -> None:
    with closing(python("input()")) as process:
        here = identity(process.pid)
        assert not send(Identity(here.pid, here.started - 1), signal.SIGKILL)
        assert lives(here)
        assert send(here, signal.SIGKILL)
        process.wait()
        assert not send(here, signal.SIGKILL)
        assert stopped(here), "who is gone does not run"


def test_a_tree_is_a_process_and_all_that_descend_from_it() -> None:
    with jobs(2) as (job, other):
        tree = living_tree([identity(job.pid)])
        assert tree[0].pid == job.pid
        assert len(tree) == 2
        assert job.pid in ancestry(tree[1].pid)
        assert other.pid not in {process.pid for process in tree}
        here = identity(job.pid)
        assert living_tree([Identity(here.pid, here.started - 1)]) == []


def test_memory_is_what_a_process_has_for_itself() -> None:
    with closing(python("x = b'x' * (32 << 20); print(len(x), flush=True); input()")) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert 32 << 20 <= host_bytes(identity(process.pid)) < 64 << 20
    assert host_bytes(Identity(process.pid, 0)) == 0


def test_a_shared_page_counts_once_in_a_tree() -> None:
    fork = "import os, time; x = b'x' * (32 << 20); child = os.fork(); print(child, flush=True); time.sleep(600)"
    with closing(python(fork)) as process:
        assert process.stdout is not None
        process.stdout.readline()
        tree = living_tree([identity(process.pid)])
        assert len(tree) == 2
        assert 32 << 20 <= sum(map(host_bytes, tree)) < 64 << 20


@pytest.mark.skipif(Path("/dev/nvidia-uvm").exists(), reason="others may use the device")
def test_without_a_device_nobody_has_a_context() -> None:
    assert contexts_by_open_files() == {}
