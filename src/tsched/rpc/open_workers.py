"""The workers that this process has open, so that none outlives a fork, meets its double, or makes noise at the end."""

from __future__ import annotations

import atexit
import os
import weakref
from typing import Protocol

from tsched.errors import ChannelClosed, Invalid


class Open(Protocol):
    """What is known here of a worker."""

    client: str
    address: str

    def end_quietly(self) -> None:
        """The interpreter ends."""
        ...


_open: weakref.WeakSet[Open] = weakref.WeakSet()
_first_pid: list[int] = []


def check_not_forked() -> None:
    """gRPC does not outlive a fork: raises `ChannelClosed` in a process that was forked from a connected one."""
    if _first_pid and _first_pid[0] != os.getpid():
        raise ChannelClosed(
            "this process was forked from one that had connected, and gRPC does not outlive a fork: "
            "start workers with subprocess, or multiprocessing's 'spawn'"
        )
    _first_pid[:] = [os.getpid()]


def add(worker: Open) -> None:
    """Raises `Invalid` where one of its name is open: each would take the other's stream away."""
    for other in list(_open):
        if (other.client, other.address) == (worker.client, worker.address):
            raise Invalid(f"client {worker.client!r} is connected to {worker.address} by this process: close it first")
    _open.add(worker)


def remove(worker: Open) -> None:
    _open.discard(worker)


@atexit.register
def _close_all() -> None:
    """A process that ends without `close` has not finished; it says so, and ends without noise."""
    for worker in list(_open):
        worker.end_quietly()
