"""What the host itself attributes to a job: processes whose environment names it.

TIMESLICE_JOB_ID names the job; where TIMESLICE_GROUP is set as well, it must be the group. An environment is inherited,
so this finds the workers of a job whoever started them, and those whose parents have ended. Nothing here stops anybody.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from tsched.backends.process import Identity
from tsched.backends.process.identity import look
from tsched.backends.process.tree import ancestry

JOB, GROUP = "TIMESLICE_JOB_ID", "TIMESLICE_GROUP"


def attributed(job: str, group: str) -> list[Identity]:
    """The living processes that are of this job and group, by pid; never this one, nor one that it descends from."""
    own = set(ancestry(os.getpid()))
    pids = sorted(int(name) for name in os.listdir("/proc") if name.isdecimal())
    found = [_identity(pid, job, group) for pid in pids if pid not in own]
    return [process for process in found if process is not None]


def named_by(pid: int) -> Mapping[str, str]:
    """What a process's environment says of its job and group; nothing where it cannot be read."""
    try:
        entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return {}
    pairs = (entry.decode(errors="replace").partition("=") for entry in entries)
    return {name: value for name, _, value in pairs if name in (JOB, GROUP)}


def names(pid: int, job: str, group: str) -> bool:
    """Whether the process's environment attributes it to this job and group."""
    said = named_by(pid)
    return said.get(JOB) == job and said.get(GROUP, group) in (group, "")


def _identity(pid: int, job: str, group: str) -> Identity | None:
    """The process is looked at before and after, so that the environment read is its own."""
    before = look(pid)
    if before is None or before.kernel or not names(pid, job, group):
        return None
    after = look(pid)
    return before.identity if after is not None and after.identity == before.identity else None
