"""Which processes of this host listen on a port: how an engine that is known by its address is found."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from tsched.rpc.address import Address

_LISTENS = "0A"
_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")


def listeners_of(endpoint: str) -> list[int]:
    """Those behind an http address of this host, by pid; none where it is another host's, or theirs cannot be seen."""
    try:
        address = urlsplit(endpoint)
        host, port = address.hostname or "", address.port or 80
    except ValueError:
        return []
    return listening_on(port) if Address(host=host).local else []


def listening_on(port: int) -> list[int]:
    """The pids that hold a listening socket of this port, as far as their files may be seen."""
    inodes = {f"socket:[{inode}]" for table in _TABLES for inode in _inodes(Path(table), port)}
    pids = sorted(int(name) for name in os.listdir("/proc") if name.isdecimal()) if inodes else []
    return [pid for pid in pids if inodes & _files(pid)]


def _inodes(table: Path, port: int) -> list[str]:
    """Columns 1, 3 and 9: the local address in hexadecimal, the state, the socket's number."""
    try:
        rows = [line.split() for line in table.read_text().splitlines()[1:]]
    except OSError:
        return []
    return [row[9] for row in rows if row[3] == _LISTENS and int(row[1].rpartition(":")[2], 16) == port]


def _files(pid: int) -> set[str]:
    found = set()
    with suppress(OSError):
        for file in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                found.add(os.readlink(file))
    return found
