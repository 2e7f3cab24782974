"""The memory of one CPU "device" as an account with an enforced capacity: what a driver's figures are for a GPU.

Charges are kept per process and owner. With a path they stand in a small mapped file that every process of the device
opens, under a file lock, and those of a process that has died vanish by themselves. The arena only counts; it holds
no memory.
"""

from __future__ import annotations

import fcntl
import hashlib
import mmap
import os
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tsched.errors import BackendError, DeviceMemoryFull, Invalid

_HEADER = struct.Struct("<8sqqq")  # magic, capacity, peak, how many entries were ever used
_ENTRY = struct.Struct("<qq16sq")  # process, its start time, digest of the owner's name, bytes
_MAGIC = b"tsarena1"
_ENTRIES = 4096
_SIZE = _HEADER.size + _ENTRIES * _ENTRY.size


class Arena:
    """One device's memory. Every call is safe between threads, and between processes where there is a path.

    Args:
        capacity_bytes: what may be charged in all.
        path: the file that processes share; made where it is missing.

    Raises:
        Invalid: the capacity is not positive, or the file is of an arena with another one.
    """

    def __init__(self, capacity_bytes: int, path: str | os.PathLike[str] | None = None) -> None:
        if capacity_bytes < 1:
            raise Invalid(f"arena: capacity_bytes must be >= 1, not {capacity_bytes}")
        self.capacity_bytes = capacity_bytes
        self._path = None if path is None else Path(path)
        self._guard = threading.Lock()
        self._file = None if path is None else os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            with self._lock():
                self._table = self._attach()
        except BaseException:
            self._close_file()
            raise

    def charge(self, owner: str, size_bytes: int) -> None:
        """Take memory for this owner. Raises `DeviceMemoryFull`, and changes nothing, where there is not so much."""
        _check_size("charge", owner, size_bytes)
        with self._lock():
            used = self._used()
            if used + size_bytes > self.capacity_bytes:
                raise DeviceMemoryFull(
                    f"{owner}: {size_bytes} bytes do not fit beside the {used} in use of {self.capacity_bytes}; "
                    "park another job first, or give the device more"
                )
            self._add(owner, size_bytes)
            _, capacity, peak, entries = _HEADER.unpack_from(self._table)
            _HEADER.pack_into(self._table, 0, _MAGIC, capacity, max(peak, used + size_bytes), entries)

    def refund(self, owner: str, size_bytes: int) -> None:
        """Give memory back. Raises `Invalid` where this owner does not hold so much."""
        _check_size("refund", owner, size_bytes)
        with self._lock():
            held = self._held(owner)
            if size_bytes > held:
                raise Invalid(f"arena: {owner} holds {held} bytes and cannot give back {size_bytes}")
            self._add(owner, -size_bytes)

    def held(self, owner: str) -> int:
        """What this owner was charged for in this process."""
        with self._lock():
            return self._held(owner)

    @property
    def used_bytes(self) -> int:
        with self._lock():
            return self._used()

    @property
    def peak_bytes(self) -> int:
        """The most that was ever charged at one time, by all processes together."""
        with self._lock():
            return int(_HEADER.unpack_from(self._table)[2])

    def close(self) -> None:
        """Detach from the file; charges stay until this process ends."""
        self._table.close()
        self._close_file()

    def _attach(self) -> mmap.mmap:
        if self._file is None:
            table = mmap.mmap(-1, _SIZE)
        else:
            if os.fstat(self._file).st_size == 0:
                os.ftruncate(self._file, _SIZE)
            if os.fstat(self._file).st_size != _SIZE:
                raise Invalid(f"arena: {self._path} is not an arena's file; name one that is, or a new one")
            table = mmap.mmap(self._file, _SIZE)
        magic, capacity, *_ = _HEADER.unpack_from(table)
        if magic == bytes(8):
            _HEADER.pack_into(table, 0, _MAGIC, self.capacity_bytes, 0, 0)
        elif magic != _MAGIC:
            raise Invalid(f"arena: {self._path} is not an arena's file; name one that is, or a new one")
        elif capacity != self.capacity_bytes:
            raise Invalid(f"arena: {self._path} has a capacity of {capacity} bytes, not {self.capacity_bytes}")
        return table

    def _used(self) -> int:
        self._bury()
        return sum(size for _, _, _, size in _ENTRY.iter_unpack(self._entries()))

    def _held(self, owner: str) -> int:
        wanted = _identity(owner)
        return sum(entry[3] for entry in _ENTRY.iter_unpack(self._entries()) if entry[:3] == wanted)

    def _add(self, owner: str, size_bytes: int) -> None:
        wanted, entries = _identity(owner), list(_ENTRY.iter_unpack(self._entries()))
        for number, (*identity, size) in enumerate(entries):
            if size and tuple(identity) == wanted:
                return self._write(number, wanted, size + size_bytes)
        free = next((number for number, entry in enumerate(entries) if not entry[3]), len(entries))
        if free == _ENTRIES:
            raise BackendError(f"arena: {_ENTRIES} owners have memory, and {owner} finds no line; end some of them")
        if free == len(entries):
            _HEADER.pack_into(self._table, 0, *_HEADER.unpack_from(self._table)[:3], free + 1)
        return self._write(free, wanted, size_bytes)

    def _bury(self) -> None:
        """Strike out the charges of processes that have died."""
        alive: dict[tuple[int, int], bool] = {}
        for number, (pid, started, digest, size) in enumerate(_ENTRY.iter_unpack(self._entries())):
            if size:
                lives = alive.setdefault((pid, started), start_time(pid) == started)
                if not lives:
                    self._write(number, (pid, started, digest), 0)

    def _write(self, number: int, identity: tuple[int, int, bytes], size_bytes: int) -> None:
        _ENTRY.pack_into(self._table, _HEADER.size + number * _ENTRY.size, *identity, size_bytes)

    def _entries(self) -> bytes:
        entries = _HEADER.unpack_from(self._table)[3]
        return self._table[_HEADER.size : _HEADER.size + entries * _ENTRY.size]

    @contextmanager
    def _lock(self) -> Iterator[None]:
        with self._guard:
            if self._file is not None:
                fcntl.flock(self._file, fcntl.LOCK_EX)
            try:
                yield
            finally:
                if self._file is not None:
                    fcntl.flock(self._file, fcntl.LOCK_UN)

    def _close_file(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def start_time(pid: int) -> int:
    """When this process began, in the kernel's ticks; 0 where there is none, or only what is left of one."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in "ZX" else int(fields[19])


def _identity(owner: str) -> tuple[int, int, bytes]:
    pid = os.getpid()
    return pid, start_time(pid), hashlib.blake2b(owner.encode(), digest_size=16).digest()


def _check_size(what: str, owner: str, size_bytes: int) -> None:
    if size_bytes < 0:
        raise Invalid(f"arena: {what} of {owner} must be >= 0 bytes, not {size_bytes}")
