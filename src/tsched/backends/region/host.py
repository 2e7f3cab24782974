"""Host memory for parked state: whole buffers, kept for the next park, within a limit.

Buffers are page-aligned shared mappings: a fork does not copy them, the system counts them apart from what the process
allocates, and one that is given back is gone at once. A used buffer has its pages already, which saves more than half
of what the first park costs.

The pool keeps an idle buffer as long as all buffers together weigh no more than were ever in use at one time; idle ones
beyond that are given back when another is made, and all of them by `shrink`. Cycles that repeat therefore make no new
buffers, and the process does not grow.
"""

from __future__ import annotations

import ctypes
import mmap
import threading
from dataclasses import dataclass, field

from tsched.errors import HostMemoryFull, Invalid

_ALIGN = 64


class Buffer:
    """One mapping, and how many pieces of it are in use."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.mapping = mmap.mmap(-1, size_bytes)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.mapping))
        self.pinned = False
        self.pieces = 0

    def close(self) -> None:
        if self.pinned:
            from tsched.backends.region.cuda import unpin

            unpin(self)
        self.mapping.close()


@dataclass(frozen=True, slots=True)
class Slice:
    """A piece of a buffer that holds one storage's bytes."""

    buffer: Buffer = field(repr=False)
    offset: int
    size_bytes: int

    @property
    def address(self) -> int:
        return self.buffer.address + self.offset


class HostPool:
    """Buffers of one process. Safe between threads.

    Args:
        limit_bytes: the most that parked states may weigh together; None for no limit. Their buffers weigh up to a
            fifth more: they are rounded, and one that is used again may be larger than was asked for.
    """

    def __init__(self, limit_bytes: int | None = None) -> None:
        if limit_bytes is not None and limit_bytes < 1:
            raise Invalid(f"host pool: limit_bytes must be >= 1, or None for no limit, not {limit_bytes}")
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._idle: list[Buffer] = []
        self._in_use_bytes = 0
        self._most_bytes = 0
        self._lock = threading.Lock()

    @property
    def mapped_bytes(self) -> int:
        """What all buffers weigh, in use and idle."""
        with self._lock:
            return self._in_use_bytes + sum(buffer.size_bytes for buffer in self._idle)

    def take(self, sizes: list[int]) -> list[Slice]:
        """One piece for each size, all in one buffer. Raises `HostMemoryFull`, with nothing taken."""
        if not sizes:
            return []
        with self._lock:
            self._check(sum(sizes))
            buffer = self._find(_rounded(sum(_aligned(size) for size in sizes)))
            self.used_bytes += sum(sizes)
            buffer.pieces = len(sizes)
        pieces, offset = [], 0
        for size in sizes:
            pieces.append(Slice(buffer, offset, size))
            offset += _aligned(size)
        return pieces

    def give(self, pieces: list[Slice]) -> None:
        """Pieces are no longer needed; their buffer is idle with the last of them."""
        with self._lock:
            for piece in pieces:
                self.used_bytes -= piece.size_bytes
                piece.buffer.pieces -= 1
                if not piece.buffer.pieces:
                    self._in_use_bytes -= piece.buffer.size_bytes
                    self._idle.append(piece.buffer)

    def shrink(self) -> int:
        """Give every idle buffer back to the system; returns their bytes."""
        with self._lock:
            self._most_bytes = self._in_use_bytes
            return self._give_back(0)

    def _check(self, size_bytes: int) -> None:
        if self.limit_bytes is not None and self.used_bytes + size_bytes > self.limit_bytes:
            raise HostMemoryFull(
                f"{size_bytes} bytes would be parked beside {self.used_bytes}, and host memory may hold "
                f"{self.limit_bytes}: restore or discard another job, or raise the limit"
            )

    def _find(self, size_bytes: int) -> Buffer:
        most_bytes = 2 * size_bytes
        if self.limit_bytes is not None:  # which a larger one would pass unseen
            most_bytes = size_bytes + max(size_bytes // 8, mmap.PAGESIZE)
        fitting = [buffer for buffer in self._idle if size_bytes <= buffer.size_bytes <= most_bytes]
        if fitting:
            buffer = min(fitting, key=lambda buffer: buffer.size_bytes)
            self._idle.remove(buffer)
        else:
            self._give_back(max(0, self._most_bytes - self._in_use_bytes - size_bytes))
            buffer = _map(size_bytes)
        self._in_use_bytes += buffer.size_bytes
        self._most_bytes = max(self._most_bytes, self._in_use_bytes)
        return buffer

    def _give_back(self, keep_bytes: int) -> int:
        """Close idle buffers, those longest idle first, until they weigh at most so much."""
        given = 0
        while self._idle and sum(buffer.size_bytes for buffer in self._idle) > keep_bytes:
            buffer = self._idle.pop(0)
            given += buffer.size_bytes
            buffer.close()
        return given


def _map(size_bytes: int) -> Buffer:
    try:
        return Buffer(size_bytes)
    except (OSError, ValueError, OverflowError) as error:
        raise HostMemoryFull(f"the system gives no {size_bytes} bytes of host memory: {error}") from error


def _aligned(size_bytes: int) -> int:
    return -(-size_bytes // _ALIGN) * _ALIGN


def _rounded(size_bytes: int) -> int:
    """Up to a page, and to a sixteenth of its size, so that a state which grows a little still fits its last buffer."""
    step = max(mmap.PAGESIZE, 1 << max(0, size_bytes.bit_length() - 5))
    return -(-size_bytes // step) * step
