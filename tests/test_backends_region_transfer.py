"""A move that fails half-way leaves everything where it was."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import cast

import pytest
import torch

from tsched.backends.arena import Arena
from tsched.backends.region import CpuCopier, HostPool, Regions, RegionStore, touch
from tsched.backends.region.host import Slice
from tsched.backends.region.transfer import Parked
from tsched.errors import BackendError, DeviceMemoryFull


class Broken(Exception):
    """What a failing copier raises."""


class FailingCopier(CpuCopier):
    """Fails at the call after so many good ones; works again from then on."""

    def __init__(self) -> None:
        self.good: int | None = None
        self._lock = threading.Lock()

    def copy_out(self, storage: torch.UntypedStorage, to: Slice) -> None:
        self._count()
        super().copy_out(storage, to)

    def copy_in(self, storage: torch.UntypedStorage, source: Slice) -> None:
        self._count()
        super().copy_in(storage, source)

    def synchronize(self) -> None:
        self._count()

    def release(self) -> None:
        self._count()
        super().release()

    def _count(self) -> None:
        with self._lock:
            if self.good is None:
                return
            if self.good > 0:
                self.good -= 1
                return
            self.good = None
        raise Broken("the copy failed")


@pytest.mark.parametrize("good", range(8))
def test_a_move_that_fails_half_way_leaves_everything_as_it_was(good: int) -> None:
    states, arena, pool, copier = [torch.arange(50) + n for n in range(3)], Arena(1200), HostPool(1200), FailingCopier()
    expected = [state.clone() for state in states]
    regions = Regions().add("x", states)
    store = RegionStore(regions, arena=arena, pool=pool, copier_for=lambda device: copier, checksums=True)
    copier.good = good
    try:
        store.park()
    except Broken:
        assert (store.parked_bytes, store.resident_bytes, pool.used_bytes, arena.used_bytes) == (0, 1200, 0, 1200)
        assert all(map(torch.equal, states, expected))
        store.park()
    copier.good = good
    try:
        store.restore()
    except Broken:
        assert (store.parked_bytes, store.resident_bytes, pool.used_bytes, arena.used_bytes) == (1200, 0, 1200, 0)
        store.restore()
    copier.good = None
    assert (pool.used_bytes, arena.used_bytes) == (0, 1200)
    assert all(map(torch.equal, states, expected))


class BrokenForGood(CpuCopier):
    """Like a device after an error that every later call repeats."""

    def __init__(self) -> None:
        self.broken = False

    def copy_in(self, storage: torch.UntypedStorage, source: Slice) -> None:
        if self.broken:
            raise Broken("the device does not answer")
        super().copy_in(storage, source)

    def release(self) -> None:
        self.broken = True
        raise Broken("the device does not answer")


def test_a_park_that_can_be_neither_finished_nor_undone_keeps_the_host_copies() -> None:
    states, arena, pool, copier = [torch.arange(50) + n for n in range(3)], Arena(1200), HostPool(), BrokenForGood()
    expected = [state.clone() for state in states]
    regions = Regions().add("x", states)
    store = RegionStore(regions, arena=arena, pool=pool, checksums=True, copier_for=lambda device: copier)
    with pytest.raises(Broken):
        store.park()
    assert (store.parked_bytes, store.resident_bytes, pool.used_bytes, arena.used_bytes) == (1200, 0, 1200, 0)
    copier.broken = False
    store.restore()
    assert all(map(torch.equal, states, expected))


def test_a_device_without_room_leaves_the_state_parked() -> None:
    arena, state = Arena(1000), torch.arange(100)
    store = RegionStore(Regions().add("x", state), arena=arena)
    store.park()
    arena.charge("other", 201)
    with pytest.raises(DeviceMemoryFull, match="job: 800 bytes do not fit beside the 201"):
        store.restore()
    assert (store.parked_bytes, state.untyped_storage().nbytes()) == (800, 0)
    arena.refund("other", 201)
    store.restore()
    assert torch.equal(state, torch.arange(100))


def test_a_host_copy_that_changed_is_noticed_and_not_brought_back() -> None:
    pool, state = HostPool(), torch.arange(100)
    store = RegionStore(Regions().add("x", state), pool=pool, checksums=True)
    store.park()
    part = next(iter(store._parked.values()))
    assert part.piece is not None
    part.piece.buffer.mapping[part.piece.offset + 5] ^= 1
    for call in (store.restore, store.export):
        with pytest.raises(BackendError, match="the host copy of 'x' has changed"):
            call()
    assert (store.parked_bytes, store.resident_bytes) == (800, 0)


WITHOUT_MEMORY = """
import resource
import torch
from tsched.backends.region import Regions, RegionStore
from tsched.errors import DeviceMemoryFull

parts = [torch.full((1 << 24,), number, dtype=torch.uint8) for number in range(4)]
store = RegionStore(Regions().add("x", parts), checksums=True)
store.park()
pages = int(open("/proc/self/statm").read().split()[0])
_, hard = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (pages * 4096 + (40 << 20), hard))
try:
    store.restore()
except DeviceMemoryFull as error:
    assert "cpu has no 16777216 bytes" in str(error), error
    assert (store.parked_bytes, store.resident_bytes) == (1 << 26, 0)
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    store.restore()
    assert [int(part.max()) for part in parts] == [int(part.min()) for part in parts] == [0, 1, 2, 3]
    print("restored in the end")
"""


def test_a_system_that_runs_out_of_memory_half_way_through_a_restore_leaves_the_state_parked() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_MEMORY], capture_output=True, text=True, check=False)
    assert done.stdout == "restored in the end\n", done.stderr


def test_a_device_that_is_broken_is_not_taken_for_one_that_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    class Faulty:
        device = "cuda:0"

        def resize_(self, size: int) -> None:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(touch, "allow", lambda storage: None)
    part = Parked(cast(torch.UntypedStorage, Faulty()), 8, "x", (), None, None)
    with pytest.raises(RuntimeError, match="illegal memory access"):
        part.allocate()


def test_without_torch_the_command_that_installs_it_is_named() -> None:
    program = "import sys; sys.modules['torch'] = None; import tsched.backends.region"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "MissingExtra: parking tensors needs torch: pip install 'tsched[torch]'" in done.stderr
