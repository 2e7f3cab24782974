"""The memory of one CPU "device" as an account with an enforced capacity: what a driver's figures are for a GPU.

Charges are kept per process and owner. With a path they stand in a small mapped file that every process of the device
opens, under a file lock, and those of a process that has died vanish by themselves. The arena only counts; it holds
no memory. Processes that share a file must see one another's process ids.

A process may be killed at any instruction. The kernel frees its lock; what it wrote is one aligned word at a time, and
a line counts from the moment that its size is written, which comes last. So the table is always one that some order
of whole charges and refunds would have left.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import mmap
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tsched.errors import BackendError, DeviceMemoryFull, Invalid

_MAGIC = int.from_bytes(b"tsarena1", "little")
_MAGIC_AT, _CAPACITY_AT, _PEAK_AT, _LINES_AT, _HEADER = 0, 1, 2, 3, 4  # words; lines are how many were ever used
_LINE = 5  # words: process, its start time, two of the owner's name, bytes
_SIZE_AT = 4
_LINES = 4096
_FILE_BYTES = 8 * (_HEADER + _LINES * _LINE)
_PATIENCE_S = 10.0

Identity = tuple[int, int, int, int]


class Arena:
    """One device's memory. Every call is safe between threads, and between processes where there is a path.

    Args:
        capacity_bytes: what may be charged in all.
        path: the file that processes share; made where it is missing.

    Raises:
        Invalid: the capacity is not positive, or the file is of an arena with another one, or cannot be one.
    """

    def __init__(self, capacity_bytes: int, path: str | os.PathLike[str] | None = None) -> None:
        if capacity_bytes < 1:
            raise Invalid(f"arena: capacity_bytes must be >= 1, not {capacity_bytes}")
        self.capacity_bytes = capacity_bytes
        self._path = None if path is None else Path(path)
        self._guard, self._pid = threading.Lock(), os.getpid()
        self._file = None if self._path is None else _open(self._path)
        try:
            with self._lock(attached=False):
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
            self._table[_PEAK_AT] = max(self._table[_PEAK_AT], used + size_bytes)

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
            return self._table[_PEAK_AT]

    def close(self) -> None:
        """Detach from the file; charges stay until this process ends."""
        self._table.release()
        self._close_file()

    def _attach(self) -> memoryview[int]:
        if self._file is None:
            mapping = mmap.mmap(-1, _FILE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        else:
            if os.fstat(self._file).st_size == 0:
                os.ftruncate(self._file, _FILE_BYTES)
            if os.fstat(self._file).st_size != _FILE_BYTES:
                raise Invalid(f"arena: {self._path} is not an arena's file; name one that is, or a new one")
            mapping = mmap.mmap(self._file, _FILE_BYTES)
        table = memoryview(mapping).cast("q")
        self._check_header(table)
        return table

    def _check_header(self, table: memoryview[int]) -> None:
        if table[_MAGIC_AT] == 0:
            table[_CAPACITY_AT] = self.capacity_bytes
            table[_MAGIC_AT] = _MAGIC
        elif table[_MAGIC_AT] != _MAGIC:
            raise Invalid(f"arena: {self._path} is not an arena's file; name one that is, or a new one")
        elif table[_CAPACITY_AT] != self.capacity_bytes:
            capacity = table[_CAPACITY_AT]
            raise Invalid(f"arena: {self._path} has a capacity of {capacity} bytes, not {self.capacity_bytes}")

    def _used(self) -> int:
        self._bury()
        return sum(self._words()[_SIZE_AT::_LINE])

    def _held(self, owner: str) -> int:
        at = self._find(_identity(owner))
        return 0 if at is None else self._table[at + _SIZE_AT]

    def _add(self, owner: str, size_bytes: int) -> None:
        identity = _identity(owner)
        at = self._find(identity)
        if at is None:
            at = self._free_line(owner)
            for number, word in enumerate(identity):
                self._table[at + number] = word
        self._table[at + _SIZE_AT] += size_bytes

    def _find(self, identity: Identity) -> int | None:
        words = self._words()
        for line in range(0, len(words), _LINE):
            if words[line + _SIZE_AT] and tuple(words[line : line + _SIZE_AT]) == identity:
                return _HEADER + line
        return None

    def _free_line(self, owner: str) -> int:
        sizes = self._words()[_SIZE_AT::_LINE]
        number = next((number for number, size in enumerate(sizes) if not size), len(sizes))
        if number == _LINES:
            raise BackendError(f"arena: {_LINES} owners have memory, and {owner} finds no line; end some of them")
        if number == len(sizes):
            self._table[_LINES_AT] = number + 1
        return _HEADER + number * _LINE

    def _bury(self) -> None:
        """Strike out the charges of processes that have died."""
        words = self._words()
        lines = [line for line in range(0, len(words), _LINE) if words[line + _SIZE_AT]]
        alive = {
            (pid, began) for pid, began in {(words[at], words[at + 1]) for at in lines} if start_time(pid) == began
        }
        for line in lines:
            if (words[line], words[line + 1]) not in alive:
                self._table[_HEADER + line + _SIZE_AT] = 0

    def _words(self) -> list[int]:
        """A copy of the lines that were ever used."""
        return self._table[_HEADER : _HEADER + self._table[_LINES_AT] * _LINE].tolist()

    @contextmanager
    def _lock(self, *, attached: bool = True) -> Iterator[None]:
        if self._pid != os.getpid():
            self._separate()
        with self._guard:
            if self._file is None:
                yield
                return
            self._wait_for_lock(self._file)
            try:
                self._check_file(self._file, attached)
                yield
            finally:
                fcntl.flock(self._file, fcntl.LOCK_UN)

    def _separate(self) -> None:
        """In a process that was forked: a lock of its own; the one that it inherited does not exclude the parent."""
        self._guard, self._pid = threading.Lock(), os.getpid()
        if self._file is not None:
            inherited, self._file = self._file, _open(Path(f"/proc/self/fd/{self._file}"))
            os.close(inherited)

    def _wait_for_lock(self, file: int) -> None:
        """Not for ever: who holds it may have been frozen at that moment."""
        deadline, pause = time.monotonic() + _PATIENCE_S, 0.0005
        while True:
            try:
                return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise BackendError(
                        f"arena: a process has kept {self._path} locked for {_PATIENCE_S:g} s: is it frozen? thaw it, "
                        "or end it"
                    ) from None
            time.sleep(pause)
            pause = min(2 * pause, 0.02)

    def _check_file(self, file: int, attached: bool) -> None:
        """Memory that is mapped beyond a file's end cannot be read, and a file without a name is not shared."""
        status = os.fstat(file)
        if attached and (status.st_size != _FILE_BYTES or not status.st_nlink):
            raise BackendError(
                f"arena: {self._path} was {'cut short' if status.st_nlink else 'deleted'} while it was in use: "
                "end the processes that share it and start with a new one"
            )

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


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Invalid(f"arena: {path} cannot be opened: {error.strerror}; name a file that can be made") from error


def _identity(owner: str) -> Identity:
    pid = os.getpid()
    digest = hashlib.blake2b(owner.encode(), digest_size=16).digest()
    first, second = (int.from_bytes(part, "little", signed=True) for part in (digest[:8], digest[8:]))
    return pid, _own_start_time(pid), first, second


@functools.cache
def _own_start_time(pid: int) -> int:
    return start_time(pid)


def _check_size(what: str, owner: str, size_bytes: int) -> None:
    if size_bytes < 0:
        raise Invalid(f"arena: {what} of {owner} must be >= 0 bytes, not {size_bytes}")
