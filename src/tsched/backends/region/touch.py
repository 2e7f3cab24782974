"""A parked tensor that is touched answers with a RuntimeError; without this, an emptied storage is a null pointer.

Torch marks a storage as not to be accessed, by reads and by writes, but builds without CUDA do not show that to
Python. There the mark is one byte of the storage object. Where it lies is found on a storage of our own: torch's
`_set_throw_on_mutable_data_ptr` sets its two neighbours. It is used only if it proves there to do what it should;
else a touch of a parked tensor crashes as it does in torch itself.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

import torch

_MESSAGE = "this tensor is parked in host memory: restore its job before using it"
_OBJECT_BYTES = 96  # what is compared; a storage object is larger
_Mark = Callable[[int, bool], None]


def forbid(storage: torch.UntypedStorage) -> None:
    """From now on a read or write of any tensor on this storage raises RuntimeError."""
    _mark()(storage._cdata, True)


def allow(storage: torch.UntypedStorage) -> None:
    """Undo `forbid`; harmless without it."""
    _mark()(storage._cdata, False)


def enforced() -> bool:
    """Whether this build of torch lets a touch be refused."""
    return _mark() is not _no_mark


@functools.cache
def _mark() -> _Mark:
    if hasattr(torch._C, "_clear_storage_data_ptr_access_error_msg"):
        return _official_mark
    found = _find_bytes()
    return _no_mark if found is None else functools.partial(_byte_mark, found)


def _official_mark(address: int, forbidden: bool) -> None:
    if forbidden:
        torch._C._set_storage_data_ptr_access_error_msg(address, _MESSAGE)
    else:
        torch._C._clear_storage_data_ptr_access_error_msg(address)


def _byte_mark(offsets: tuple[int, ...], address: int, forbidden: bool) -> None:
    for offset in offsets:
        ctypes.c_ubyte.from_address(address + offset).value = forbidden


def _no_mark(address: int, forbidden: bool) -> None:
    pass


def _find_bytes() -> tuple[int, ...] | None:
    """The bytes that say "check before access" and "refuse reads too", or None where they do not prove to be so."""
    probe = torch.zeros(64)
    address = probe.untyped_storage()._cdata
    before = ctypes.string_at(address, _OBJECT_BYTES)
    torch._C._set_throw_on_mutable_data_ptr(probe)
    after = ctypes.string_at(address, _OBJECT_BYTES)
    changed = [at for at in range(_OBJECT_BYTES) if before[at] != after[at]]
    if len(changed) != 2 or any((before[at], after[at]) != (0, 1) for at in changed):
        return None
    offsets = changed[0], changed[1] + 1
    return offsets if _proves(offsets) else None


def _proves(offsets: tuple[int, ...]) -> bool:
    """Tried on a storage that has its memory, so that a wrong byte cannot crash."""
    probe = torch.ones(64)
    storage = probe.untyped_storage()
    if any(ctypes.string_at(storage._cdata, _OBJECT_BYTES)[offset] for offset in offsets):
        return False
    _byte_mark(offsets, storage._cdata, True)
    refused = all(_raises(touch) for touch in (probe.clone, probe.sum, lambda: probe.add_(1), lambda: probe + 1))
    _byte_mark(offsets, storage._cdata, False)
    return refused and storage.resizable() and storage.nbytes() == 256 and not _raises(probe.clone)


def _raises(touch: Callable[[], object]) -> bool:
    try:
        touch()
    except RuntimeError:
        return True
    return False
