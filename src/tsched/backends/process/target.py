"""One job on one node: its processes, and what parking, restoring, ending and looking at them comes to.

Where a process of the job has a context on a device, those that have one are suspended through the driver, and the
rest of the tree goes on; none of it may touch managed memory meanwhile, which is then not there. Where none has, the
device is the right to run: the whole tree is frozen, and its memory, which stays where it is, counts as the device's
while it runs and as the host's while it is frozen.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from tsched.backends import Presence
from tsched.backends.process.calls import Calls
from tsched.backends.process.driver import State
from tsched.backends.process.freezer import Freezer
from tsched.backends.process.identity import Identity, lives, look, send
from tsched.backends.process.limits import Limits
from tsched.backends.process.lookup import Drivers
from tsched.backends.process.memory import GpuPids, contexts_by_open_files, host_bytes
from tsched.backends.process.plan import Plan
from tsched.backends.process.tree import living_tree
from tsched.errors import BackendError, ProcessGone

_PAUSE_S = 0.002


class Sight(Struct, frozen=True):
    """What a look shows. `leaving`: device memory that nobody uses any more is not free yet."""

    presence: Presence
    leaving: bool = False


class Target:
    """Its methods block; moves must not run beside each other, looks may."""

    def __init__(
        self,
        name: str,
        known: Sequence[Identity],
        make_freezer: Callable[[Sequence[Identity]], Freezer],
        drivers: Drivers,
        gpu_pids: GpuPids,
        limits: Limits,
    ) -> None:
        self.name, self._make_freezer = name, make_freezer
        self._drivers, self._gpu_pids, self._limits = drivers, gpu_pids, limits
        self._known, self._lock = list(known), threading.Lock()
        self._freezer = make_freezer(living_tree(known))
        self._on_device: dict[Identity, int] = {}  # who held how much device memory before the last park
        self._parked: frozenset[Identity] = frozenset()  # by this object; the driver may lose sight of them
        self._calls = Calls()

    def add(self, processes: Sequence[Identity]) -> None:
        """More processes of the same job. What is frozen stays with what froze it."""
        frozen = any(map(self._freezer.frozen, self.members()))
        with self._lock:
            self._known += processes
            if not frozen:
                self._freezer = self._make_freezer(living_tree(self._known))

    def members(self) -> list[Identity]:
        """All processes of the job that live, by age."""
        with self._lock:
            self._known = living_tree([*self._known, *self._freezer.strays()])
            return list(self._known)

    def holders(self) -> list[Identity]:
        """Those that have a context on a device, in use or suspended."""
        return self._holders(self._gpu_pids())

    def _holders(self, listed: Mapping[int, int | None]) -> list[Identity]:
        return [
            each
            for each in self.members()
            if each.pid in listed or each in self._parked or self._calls.busy(each) or self._suspended(each)
        ]

    def park(self) -> None:
        self._must_live()
        listed = self._gpu_pids()
        holders = self._holders(listed)
        self._must_be_listed(holders)
        if holders:
            self._remember(holders, listed)
            self._plan().suspend()
            self._parked = frozenset(holders)
        else:
            self._freezer.freeze(self.members, self._limits.freeze_s)
        self._must_live()

    def restore(self) -> None:
        if any(map(self._freezer.frozen, self._must_live())):
            self._freezer.thaw(self.members, self._limits.freeze_s)
        if self.holders():
            self._plan().resume()
        self._parked = frozenset()
        self._must_live()

    def kill(self) -> None:
        for process in self.members():
            send(process, signal.SIGKILL)

    def end(self) -> None:
        """Kill until nothing is left."""
        until = time.monotonic() + self._limits.kill_s
        while left := self.members():
            if time.monotonic() > until:
                pids = ", ".join(str(process.pid) for process in left)
                raise BackendError(f"job {self.name!r}: processes {pids} were killed and have not ended yet: try again")
            self.kill()
            time.sleep(_PAUSE_S)
        self._freezer.close()

    def see(self) -> Sight:
        members, listed = self.members(), self._gpu_pids()
        residue = self._residue(listed)
        if holders := self._holders(listed):
            resident, parked = self._device_share(holders, listed)
        else:
            resident, parked = self._host_share(members)
        return Sight(Presence(resident + residue, parked, alive=bool(members)), leaving=residue > 0)

    def _host_share(self, members: list[Identity]) -> tuple[int, int]:
        held = sum(map(host_bytes, members))
        return (0, held) if all(map(self._freezer.frozen, members)) else (held, 0)

    def _device_share(self, holders: list[Identity], listed: Mapping[int, int | None]) -> tuple[int, int]:
        """A figure that is not known counts as one byte: something is there."""
        parked = [each for each in holders if self._state(each) is State.CHECKPOINTED]
        in_use = [each for each in holders if each not in parked]
        return (
            sum(listed.get(each.pid) or 1 for each in in_use),
            sum(self._on_device.get(each) or host_bytes(each) or 1 for each in parked),
        )

    def _remember(self, holders: Sequence[Identity], listed: Mapping[int, int | None]) -> None:
        kept = {each: size for each, size in self._on_device.items() if lives(each) or each.pid in listed}
        self._on_device = kept | {each: size for each in holders if (size := listed.get(each.pid))}

    def _residue(self, listed: Mapping[int, int | None]) -> int:
        """Device memory still charged to processes that are checkpointed or gone."""
        return sum(listed.get(each.pid) or 0 for each in list(self._on_device) if self._released(each))

    def _released(self, process: Identity) -> bool:
        if lives(process):
            return self._state(process) is State.CHECKPOINTED
        return look(process.pid) is None  # another process has the pid now, and the memory listed is that one's

    def _suspended(self, process: Identity) -> bool:
        return self._state(process) not in (None, State.RUNNING)

    def _state(self, process: Identity) -> State | None:
        """None where the driver knows nothing of it, or is busy with it."""
        driver = self._drivers.present()
        return None if driver is None or self._calls.busy(process) else driver.state(process.pid)

    def _plan(self) -> Plan:
        return Plan(self.holders, self._drivers.needed(), calls=self._calls, limits=self._limits)

    def _must_be_listed(self, holders: Sequence[Identity]) -> None:
        """Freezing a process that has a context would leave its device memory where it is, unseen."""
        contexts = contexts_by_open_files()
        unseen = [str(each.pid) for each in self.members() if each.pid in contexts and each not in holders]
        if unseen:
            raise BackendError(
                f"job {self.name!r}: processes {', '.join(unseen)} use an NVIDIA device, but are not among those that "
                "the driver lists: run with the host's process numbers (in containers: --pid=host)"
            )

    def _must_live(self) -> list[Identity]:
        members = self.members()
        if not members:
            raise ProcessGone(f"job {self.name!r}: all its processes have exited; register its new ones")
        return members
