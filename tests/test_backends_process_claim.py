"""Only a living process that is ours to stop, and no other job's, can be registered."""

from __future__ import annotations

import os
import threading

import pytest

from tests.process_trees import closing, identity, jobs, python
from tsched.backends.process.claim import claim, unclaimed
from tsched.backends.process.tree import living_tree
from tsched.errors import Invalid, ProcessGone


def test_a_living_process_is_known_by_its_start() -> None:
    with jobs() as (job,):
        assert claim([job.pid], {}) == [identity(job.pid)]


@pytest.mark.parametrize("pid", [1, os.getpid(), os.getppid()])
def test_this_process_and_its_ancestors_are_refused(pid: int) -> None:
    with pytest.raises(Invalid, match="would stop the scheduler"):
        claim([pid], {})


@pytest.mark.parametrize("pid", [0, -5])
def test_what_is_no_pid_is_refused(pid: int) -> None:
    with pytest.raises(Invalid, match="no pid"):
        claim([pid], {})


def test_no_pids_at_all_are_refused() -> None:
    with pytest.raises(Invalid, match="no pids"):
        claim([], {})


def test_a_process_that_has_exited_is_refused() -> None:
    with closing(python("pass")) as process:
        process.wait()
        with pytest.raises(ProcessGone, match=f"process {process.pid} has exited"):
            claim([process.pid], {})


def test_a_thread_is_refused_and_its_process_named() -> None:
    code = "import threading; t = threading.Thread(target=input); t.start(); print(t.native_id, flush=True)"
    with closing(python(code)) as process:
        assert process.stdout is not None
        thread = int(process.stdout.readline())
        with pytest.raises(Invalid, match=f"{thread} is a thread of process {process.pid}"):
            claim([thread], {})


def test_a_parent_of_another_jobs_process_is_refused() -> None:
    with jobs() as (job,):
        child = living_tree([identity(job.pid)])[1]
        with pytest.raises(Invalid, match=f"process {child.pid} belongs to job 'b'"):
            claim([job.pid], {child: "b"})


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_users_process_is_refused() -> None:
    with jobs() as (job,):
        refusals: list[str] = []

        def as_nobody() -> None:
            # of this thread alone: the library's call would change all threads
            setresuid = 117 if os.uname().machine == "x86_64" else 147
            import ctypes

            assert ctypes.CDLL(None, use_errno=True).syscall(setresuid, -1, 65534, -1) == 0
            try:
                claim([job.pid], {})
            except Invalid as error:
                refusals.append(str(error))

        thread = threading.Thread(target=as_nobody)
        thread.start()
        thread.join()
        assert refusals == [f"process {job.pid} belongs to user 0, and this is user 65534: run as its owner or as root"]


def test_a_process_whose_environment_names_another_job_is_not_found() -> None:
    with (
        closing(python("input()", environment={"TIMESLICE_JOB_ID": "a"})) as own,
        closing(python("input()", environment={"TIMESLICE_JOB_ID": "b"})) as other,
        jobs() as (unnamed,),
    ):
        seen = [own.pid, other.pid, unnamed.pid, os.getpid()]
        assert unclaimed("a", seen, {}) == [own.pid, unnamed.pid]
        assert unclaimed("a", seen, {identity(unnamed.pid): "c"}) == [own.pid]
