"""A parked tensor that is touched answers with a RuntimeError; without this, an emptied storage is a null pointer.

Torch has a mark for a storage that must not be accessed, by reads or by writes. Builds with CUDA give it to Python,
later ones with a way to take it back; there that is used. Elsewhere the mark is two flags of the storage object, set
by address, and only under three conditions, each of which must hold:

1. The header that this very build ships declares the three flags one after another, as plain bools. (It does in 2.6 to
   2.13.)
2. On a storage of our own, torch's `_set_throw_on_mutable_data_ptr` sets exactly the first two, side by side. So the
   third is the next byte, and a bool.
3. Tried there, on memory that is present, the mark refuses reads and writes, and taking it back admits them.

Where one fails there is no mark, `enforced` says so, and whoever touches a parked tensor meets what torch itself does
with an empty storage: as a rule the process ends with SIGSEGV.
"""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Callable
from pathlib import Path

import torch

_MESSAGE = "this tensor is parked in host memory: restore its job before using it"
_OBJECT_BYTES = 96  # what is compared; a storage object is larger
_FLAGS = ("has_mutable_data_ptr_check_", "throw_on_mutable_data_ptr_", "throw_on_immutable_data_ptr_")
_HEADER = Path(torch.__file__).parent / "include" / "c10" / "core" / "StorageImpl.h"
_Mark = Callable[[int, bool], None]


def forbid(storage: torch.UntypedStorage) -> None:
    """From now on a read or write of any tensor on this storage, which is empty, raises RuntimeError."""
    _mark()(storage._cdata, True)


def allow(storage: torch.UntypedStorage) -> None:
    """Undo `forbid`, before the storage is filled; harmless without it."""
    _mark()(storage._cdata, False)


def enforced() -> bool:
    """Whether this build of torch lets a touch be refused."""
    return _mark() is not _no_mark


@functools.cache
def _mark() -> _Mark:
    if hasattr(torch._C, "_clear_storage_data_ptr_access_error_msg"):
        return _official_mark
    return find_mark(_HEADER)


def find_mark(header: Path) -> _Mark:
    """The mark by address, or none, which does nothing, where it is not certain."""
    at = _find_first_flag() if _declares_flags(header) else None
    if at is None or not _proves(at):
        return _no_mark
    return functools.partial(_flag_mark, at)


def _official_mark(address: int, forbidden: bool) -> None:
    if forbidden:
        torch._C._set_storage_data_ptr_access_error_msg(address, _MESSAGE)
    else:
        torch._C._clear_storage_data_ptr_access_error_msg(address)


def _flag_mark(first: int, address: int, forbidden: bool) -> None:
    """The first flag, "there are checks", is left set: torch works it out anew whenever memory comes or goes."""
    if forbidden:
        ctypes.c_bool.from_address(address + first).value = True
    ctypes.c_bool.from_address(address + first + 2).value = forbidden


def _no_mark(address: int, forbidden: bool) -> None:
    pass


def _declares_flags(header: Path) -> bool:
    try:
        code = re.sub(r"//[^\n]*", "", header.read_text(encoding="utf-8"))
    except OSError:
        return False
    return re.search(r"\s*".join(rf"bool\s+{flag}\s*=\s*false;" for flag in _FLAGS), code) is not None


def _find_first_flag() -> int | None:
    probe = torch.zeros(64)
    address = probe.untyped_storage()._cdata
    before = ctypes.string_at(address, _OBJECT_BYTES)
    torch._C._set_throw_on_mutable_data_ptr(probe)
    after = ctypes.string_at(address, _OBJECT_BYTES)
    changed = [at for at in range(_OBJECT_BYTES) if before[at] != after[at]]
    flags = [(before[at], after[at]) for at in changed]
    adjacent = len(changed) == 2 and changed[1] == changed[0] + 1 < _OBJECT_BYTES - 1
    return changed[0] if adjacent and flags == [(0, 1), (0, 1)] and not after[changed[0] + 2] else None


def _proves(first: int) -> bool:
    """Tried on a storage that has its memory, so that nothing can crash."""
    probe = torch.ones(64)
    address = probe.untyped_storage()._cdata
    touches = (probe.clone, probe.sum, lambda: probe.add_(1), lambda: probe + 1)
    _flag_mark(first, address, True)
    refused = all(_raises(touch) for touch in touches)
    _flag_mark(first, address, False)
    return refused and not any(_raises(touch) for touch in touches) and torch.equal(probe, torch.full((64,), 2.0))


def _raises(touch: Callable[[], object]) -> bool:
    try:
        touch()
    except RuntimeError:
        return True
    return False
