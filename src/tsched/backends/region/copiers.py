"""How bytes pass between device and host, one class for each kind of device: the only code that knows which it is."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Protocol, TypeAlias

import torch

from tsched.backends.region.host import Slice
from tsched.errors import BackendError

CHUNK_BYTES = 32 << 20


class Copier(Protocol):
    """Copies for one device. They may be under way until `synchronize`; one thread uses a copier at a time."""

    def begin(self) -> None:
        """Wait for the work that the device has been given; called once before a move."""
        ...

    def copy_out(self, storage: torch.UntypedStorage, to: Slice) -> None: ...

    def copy_in(self, storage: torch.UntypedStorage, source: Slice) -> None: ...

    def duplicate(self, storage: torch.UntypedStorage, to: torch.UntypedStorage) -> None:
        """Copy to another storage of the same size, on this device or on the host, at once."""
        ...

    def clear(self, storage: torch.UntypedStorage) -> None:
        """Fill with zeros."""
        ...

    def synchronize(self) -> None:
        """Wait for the copies."""
        ...

    def release(self) -> None:
        """Give back to the device what was freed and is only cached, after a park."""
        ...

    def trim(self) -> None:
        """The same at the end of a turn; nothing where the next job can have that memory anyhow."""
        ...


CopierFor: TypeAlias = Callable[[torch.device], Copier]


def copier_for(device: torch.device) -> Copier:
    """A copier of this device, for the calling move alone. Raises `BackendError` for a kind that has none."""
    if device.type == "cpu":
        return CpuCopier()
    if device.type == "cuda":
        from tsched.backends.region.cuda import CudaCopier

        return CudaCopier(device)
    raise BackendError(f"state on a {device.type!r} device cannot be parked: there are copiers for cpu and cuda")


class CpuCopier:
    """Memory to memory with plain copies, which let other threads run and start no threads of their own."""

    def begin(self) -> None:
        pass

    def copy_out(self, storage: torch.UntypedStorage, to: Slice) -> None:
        copy(to.address, storage.data_ptr(), storage.nbytes())

    def copy_in(self, storage: torch.UntypedStorage, source: Slice) -> None:
        copy(storage.data_ptr(), source.address, source.size_bytes)

    def duplicate(self, storage: torch.UntypedStorage, to: torch.UntypedStorage) -> None:
        copy(to.data_ptr(), storage.data_ptr(), storage.nbytes())

    def clear(self, storage: torch.UntypedStorage) -> None:
        ctypes.memset(storage.data_ptr(), 0, storage.nbytes())

    def synchronize(self) -> None:
        pass

    def release(self) -> None:
        """Small and middling blocks go to the C library's heaps, several a process, which keep them until told.

        What gradients and an optimizer's step left there would stand beside the next job's state, which is restored by
        another thread into another heap.
        """
        trim = _malloc_trim()
        if trim is not None:
            trim(0)

    def trim(self) -> None:
        """Nothing: it costs more than a turn that moves nothing, and the pages are wanted again in the next one."""


def copy(to: int, source: int, size_bytes: int) -> None:
    """By chunks, so that a thread which waits for the interpreter is not kept from it."""
    for at in range(0, size_bytes, CHUNK_BYTES):
        ctypes.memmove(to + at, source + at, min(CHUNK_BYTES, size_bytes - at))


@functools.cache
def _malloc_trim() -> Callable[[int], int] | None:
    """glibc's; other C libraries have none."""
    try:
        trim: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except AttributeError:
        return None
    return trim
