"""Copies between a CUDA device and pinned host buffers, on a stream of its own for each direction.

NOT RUN ON HARDWARE YET: this module was written against torch's documentation and has met no GPU.

Order of a park: everything that the device was given is finished (`begin`), copies run on the side stream, an event
after the last of them is waited for, and only then are the storages released and the allocator's cache emptied. A
restore allocates on the calling thread's current stream, and its side stream waits for that one first, because the
allocator may hand out a block whose last use is still queued there.
"""

from __future__ import annotations

import torch

from tsched.backends.region.host import Buffer, Slice
from tsched.errors import BackendError


class CudaCopier:
    """One device, one move."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._out = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._in = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def begin(self) -> None:
        torch.cuda.synchronize(self._device)

    def copy_out(self, storage: torch.UntypedStorage, to: Slice) -> None:
        with torch.cuda.stream(self._out):
            _host(to).copy_(_bytes(storage), non_blocking=True)

    def copy_in(self, storage: torch.UntypedStorage, source: Slice) -> None:
        self._in.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._in):
            _bytes(storage).copy_(_host(source), non_blocking=True)

    def duplicate(self, storage: torch.UntypedStorage, to: torch.UntypedStorage) -> None:
        _bytes(to).copy_(_bytes(storage))
        torch.cuda.synchronize(self._device)

    def clear(self, storage: torch.UntypedStorage) -> None:
        self._in.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._in):
            _bytes(storage).zero_()

    def synchronize(self) -> None:
        for stream in (self._out, self._in):
            stream.record_event().synchronize()

    def release(self) -> None:
        with torch.cuda.device(self._device):
            torch.cuda.empty_cache()


def unpin(buffer: Buffer) -> None:
    """Before its mapping is closed: pinned memory that is unmapped stays with the driver."""
    torch.cuda.cudart().cudaHostUnregister(buffer.address)  # type: ignore[no-untyped-call]
    buffer.pinned = False


def _pin(buffer: Buffer) -> None:
    if buffer.pinned:
        return
    error = torch.cuda.cudart().cudaHostRegister(buffer.address, buffer.size_bytes, 0)  # type: ignore[no-untyped-call]
    if int(error):
        raise BackendError(f"the driver does not pin {buffer.size_bytes} bytes of host memory: error {int(error)}")
    buffer.pinned = True


def _host(piece: Slice) -> torch.Tensor:
    _pin(piece.buffer)
    return torch.frombuffer(piece.buffer.mapping, dtype=torch.uint8, count=piece.size_bytes, offset=piece.offset)


def _bytes(storage: torch.UntypedStorage) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
