"""Freezing with a control group of the job's own (cgroup v2): the kernel stops all of it at once, unnoticed.

The group is a child of the one that the job runs in, so every limit on it goes on to hold. Children are born into it,
which is how orphans are found. A job that is spread over several groups is not gathered: it would leave its limits.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path

from tsched.backends.process.freezer import Freezer, SignalFreezer
from tsched.backends.process.identity import Identity, lives, look, stopped
from tsched.backends.process.tree import Members, living_tree
from tsched.errors import BackendError

_PAUSE_S = 0.002
_GATHER_S = 5.0
_PREFIX = "tsched-"


def freezer_for(tree: Sequence[Identity]) -> Freezer:
    """A control group where one can be made, else signals; signals too for a tree that they have stopped already."""
    if all(map(stopped, tree)):
        return SignalFreezer()
    try:
        return CgroupFreezer(tree)
    except (OSError, BackendError):
        return SignalFreezer()


class CgroupFreezer:
    """Raises `BackendError` or `OSError` where the tree cannot be gathered in one group."""

    def __init__(self, tree: Sequence[Identity]) -> None:
        self.folder = _folder_for(tree)
        sweep(self.folder.parent)
        self.folder.mkdir(exist_ok=True)
        try:
            (self.folder / "cgroup.freeze").read_text()
            self._gather(lambda: living_tree(tree), time.monotonic() + _GATHER_S)
        except (OSError, BackendError):
            self.close()
            raise

    def freeze(self, members: Members, limit_s: float) -> None:
        until = time.monotonic() + limit_s
        try:
            self._write("cgroup.freeze", "1")
            self._gather(members, until)
            self._await(frozen=True, until=until)
        except (BackendError, OSError) as error:
            self._write("cgroup.freeze", "0")
            raise BackendError(f"{self.folder.name} does not freeze: {error}") from error

    def thaw(self, members: Members, limit_s: float) -> None:
        try:
            self._write("cgroup.freeze", "0")
            self._await(frozen=False, until=time.monotonic() + limit_s)
        except (BackendError, OSError) as error:
            self._write("cgroup.freeze", "1")
            raise BackendError(f"{self.folder.name} does not thaw: {error}") from error

    def frozen(self, process: Identity) -> bool:
        return (self._at_rest() and self._holds(process)) or not lives(process)

    def strays(self) -> list[Identity]:
        try:
            pids = (self.folder / "cgroup.procs").read_text().split()
        except OSError:
            return []
        seen = [look(int(pid)) for pid in pids]
        return [each.identity for each in seen if each is not None and self._holds(each.identity)]

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.folder.rmdir()

    def _gather(self, members: Members, until: float) -> None:
        """Bring all in; who is born meanwhile to one that was still outside is brought in as well."""
        while outside := [process for process in members() if not self._holds(process)]:
            _in_time(until)
            for process in outside:
                with contextlib.suppress(ProcessLookupError):
                    self._write("cgroup.procs", str(process.pid))

    def _holds(self, process: Identity) -> bool:
        where = cgroup_of(process.pid)
        return where is not None and where.rpartition("/")[2] == self.folder.name

    def _at_rest(self) -> bool:
        try:
            return "frozen 1" in (self.folder / "cgroup.events").read_text().splitlines()
        except OSError:
            return False

    def _await(self, *, frozen: bool, until: float) -> None:
        while self._at_rest() is not frozen:
            if not self.strays():
                return
            _in_time(until)
            time.sleep(_PAUSE_S)

    def _write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)


def _folder_for(tree: Sequence[Identity]) -> Path:
    """The group of the job, which a scheduler that was restarted finds again, or where to make it."""
    where = {Path(path) for process in tree if (path := cgroup_of(process.pid)) is not None}
    own = [path for path in where if path.name.startswith(_PREFIX)]
    homes = {path.parent if path in own else path for path in where}
    if len(homes) != 1 or len(own) > 1 or ".." in str(*homes):
        raise BackendError("the processes run in several control groups, or outside of this namespace")
    folder = own[0] if own else homes.pop() / f"{_PREFIX}{tree[0].pid}-{tree[0].started}"
    return mount_point() / folder.relative_to("/")


def _in_time(until: float) -> None:
    if time.monotonic() > until:
        raise BackendError("some process waits in the kernel, for a disk or a device")


def sweep(home: Path) -> None:
    """Remove the groups of jobs that have ended by themselves. The kernel keeps those that are not empty."""
    for folder in home.glob(f"{_PREFIX}*-*"):
        pid, _, started = folder.name.removeprefix(_PREFIX).partition("-")
        if pid.isdecimal() and started.isdecimal() and not lives(Identity(int(pid), int(started))):
            with contextlib.suppress(OSError):
                folder.rmdir()


def mount_point() -> Path:
    """Where the unified hierarchy is mounted; raises `BackendError` where it is not."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split()
        if fields[fields.index("-") + 1] == "cgroup2" and fields[3] == "/":
            return Path(fields[4])
    raise BackendError("no cgroup v2 hierarchy is mounted here")


def cgroup_of(pid: int) -> str | None:
    """The process's group in the unified hierarchy; None where it has exited."""
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return next((line[3:] for line in lines if line.startswith("0::")), None)
