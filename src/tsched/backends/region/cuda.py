"""Copies between a CUDA device and pinned host buffers, on a stream of its own for each direction.

NOT RUN ON HARDWARE YET: this module was written against torch's documentation and has met no GPU.

Order of a park: everything that the device was given is finished (`begin`), copies run on the side stream, an event
after the last of them is waited for, and only then are the storages released and the allocator's cache emptied. A
restore allocates on the calling thread's current stream, and its side stream waits for that one first, because the
allocator may hand out a block whose last use is still queued there.

A restored storage lies at another address. What keeps addresses outside of torch's tensors (a captured CUDA graph, a
buffer registered with NCCL) does not know that, and must be made anew after a restore.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress

import torch

from tsched.backends.region.host import Buffer, Slice
from tsched.errors import BackendError, HostMemoryFull

_FOR_ALL_DEVICES = 1  # cudaHostRegisterPortable: the pieces of one buffer may be of several devices
_OUT_OF_MEMORY = 2  # cudaErrorMemoryAllocation

_pins: weakref.WeakKeyDictionary[Buffer, weakref.finalize[..., Buffer]] = weakref.WeakKeyDictionary()


class CudaCopier:
    """One device, one move."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._out = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._in = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def begin(self) -> None:
        torch.cuda.synchronize(self._device)

    def copy_out(self, storage: torch.UntypedStorage, to: Slice) -> None:
        with self._on(self._out):
            _host(to, self._device).copy_(_bytes(storage), non_blocking=True)

    def copy_in(self, storage: torch.UntypedStorage, source: Slice) -> None:
        self._in.wait_stream(torch.cuda.current_stream(self._device))
        with self._on(self._in):
            _bytes(storage).copy_(_host(source, self._device), non_blocking=True)

    def duplicate(self, storage: torch.UntypedStorage, to: torch.UntypedStorage) -> None:
        _bytes(to).copy_(_bytes(storage))
        torch.cuda.synchronize(self._device)

    def clear(self, storage: torch.UntypedStorage) -> None:
        self._in.wait_stream(torch.cuda.current_stream(self._device))
        with self._on(self._in):
            _bytes(storage).zero_()

    def synchronize(self) -> None:
        for stream in (self._out, self._in):
            stream.record_event().synchronize()

    def release(self) -> None:
        with torch.cuda.device(self._device):
            torch.cuda.empty_cache()

    def trim(self) -> None:
        """What this process keeps cached, no other one can have."""
        self.release()

    @contextmanager
    def _on(self, stream: torch.cuda.Stream) -> Iterator[None]:
        """The device first: leaving a stream of another device would make a context on the thread's own, the first."""
        with torch.cuda.device(self._device), torch.cuda.stream(stream):
            yield


def unpin(buffer: Buffer) -> None:
    """Before its mapping is closed: pinned memory that is unmapped stays with the driver."""
    _pins.pop(buffer)()
    buffer.pinned = False


def _pin(buffer: Buffer, device: torch.device) -> None:
    """Until `unpin`, or until nobody has the buffer any more."""
    if buffer.pinned:
        return
    cudart = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    error = int(cudart.cudaHostRegister(buffer.address, buffer.size_bytes, _FOR_ALL_DEVICES))
    if error:
        _forget_error(device)
        kind = HostMemoryFull if error == _OUT_OF_MEMORY else BackendError
        raise kind(
            f"the driver does not pin {buffer.size_bytes} bytes of host memory: error {error}: free host memory, or "
            "raise the limits on locked memory (ulimit -l) and on the container's"
        )
    end = weakref.finalize(buffer, _unregister, torch.cuda.device(device), cudart.cudaHostUnregister, buffer.address)
    end.atexit = False
    _pins[buffer] = end
    buffer.pinned = True


def _unregister(on: AbstractContextManager[object], unregister: Callable[[int], object], address: int) -> None:
    with on:
        unregister(address)


def _forget_error(device: torch.device) -> None:
    """The runtime keeps a refusal for the thread's next kernel, which fails with it; let that be one of no use."""
    with suppress(RuntimeError):
        torch.empty(1, dtype=torch.uint8, device=device).fill_(0)


def _host(piece: Slice, device: torch.device) -> torch.Tensor:
    _pin(piece.buffer, device)
    return torch.frombuffer(piece.buffer.mapping, dtype=torch.uint8, count=piece.size_bytes, offset=piece.offset)


def _bytes(storage: torch.UntypedStorage) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
