"""Which processes may be registered for a job: living ones that are ours to stop, and no other job's."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from tsched.backends.process.identity import Identity, look
from tsched.backends.process.tree import ancestry, living_tree
from tsched.errors import Invalid, ProcessGone

_JOB_VARIABLE = b"TIMESLICE_JOB_ID="


def claim(pids: Iterable[int], taken: Mapping[Identity, str]) -> list[Identity]:
    """The processes that have these pids now.

    Args:
        taken: what belongs to other jobs, with the jobs' names.

    Raises:
        Invalid: a pid that must not be stopped, or that belongs to another job.
        ProcessGone: no such process.
    """
    processes = [_claim_one(pid) for pid in pids]
    if not processes:
        raise Invalid("no pids were given: name at least one process of the job")
    for process in living_tree(processes):
        if process in taken:
            raise Invalid(f"process {process.pid} belongs to job {taken[process]!r}: discard or unregister that first")
    return processes


def unclaimed(job: str, on_device: Iterable[int], taken: Mapping[Identity, str]) -> list[int]:
    """The pids with a context on a device that may be this job's: no other job has them, nor does their environment
    name another. Empty where there is none."""
    theirs = {process.pid for process in taken}
    own = ancestry(os.getpid())
    return [pid for pid in on_device if pid not in theirs and pid not in own and _job_named_by(pid) in ("", job)]


def _job_named_by(pid: int) -> str | None:
    """What the process's environment says, empty where it says nothing; None where it cannot be read."""
    try:
        entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    named = [entry for entry in entries if entry.startswith(_JOB_VARIABLE)]
    return named[0].removeprefix(_JOB_VARIABLE).decode(errors="replace") if named else ""


def _claim_one(pid: int) -> Identity:
    if pid < 1:
        raise Invalid(f"{pid!r} is no pid: a pid is a positive integer")
    if pid == 1 or pid in ancestry(os.getpid()):
        raise Invalid(
            f"process {pid} is this process or one that it descends from: stopping it would stop the scheduler"
        )
    seen = look(pid)
    if seen is None:
        raise ProcessGone(f"process {pid} has exited, or never was: register a running process")
    if seen.kernel:
        raise Invalid(f"process {pid} is a thread of the kernel: name a process of the job")
    _check_status(pid)
    return seen.identity


def _check_status(pid: int) -> None:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError) as error:
        raise ProcessGone(f"process {pid} has exited: register a running process") from error
    status = {name: value.split() for name, _, value in (line.partition(":") for line in lines)}
    leader, owner, user = int(status["Tgid"][0]), int(status["Uid"][0]), os.geteuid()
    if leader != pid:
        raise Invalid(f"{pid} is a thread of process {leader}: register {leader}")
    if user not in (0, owner):
        raise Invalid(f"process {pid} belongs to user {owner}, and this is user {user}: run as its owner or as root")
