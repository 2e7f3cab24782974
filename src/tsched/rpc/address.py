"""Where a scheduler listens: `unix:/path.sock`, or `host:port`. Read here, and nowhere else."""

from __future__ import annotations

import ipaddress
import os
import socket
import stat
from contextlib import suppress
from dataclasses import dataclass

from tsched.errors import Invalid

# What `sockaddr_un` holds on Linux, less the closing zero.
MAX_PATH_BYTES = 107


@dataclass(frozen=True, slots=True)
class Address:
    """A socket's place: a path, or a host and a port."""

    path: str = ""
    host: str = ""
    port: int = 0

    def __str__(self) -> str:
        if self.path:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def local(self) -> bool:
        """Whether nobody but this host can reach it."""
        if self.path or self.host == "localhost":
            return True
        with suppress(ValueError):
            return ipaddress.ip_address(self.host).is_loopback
        return False


def parse(text: str) -> Address:
    """Raises `Invalid` for what is neither form."""
    if text.startswith("unix:"):
        return _unix(text.removeprefix("unix:").removeprefix("//"), text)
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise Invalid(f"address {text!r} is neither unix:/path.sock nor host:port")
    return Address(host=host, port=int(port))


def check_local(address: Address, insecure: bool) -> None:
    """Nothing here is encrypted: what others can reach must be asked for."""
    if not address.local and not insecure:
        raise Invalid(
            f"address {address}: connections are neither encrypted nor authenticated, so only this host is served: "
            "use unix:/path.sock or 127.0.0.1, or say insecure=True"
        )


def clear_way(address: Address) -> None:
    """Remove a socket that a dead server left behind; raises `Invalid` where a living one, or a file, is in the way."""
    try:
        mode = os.stat(address.path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise Invalid(f"address {address}: a file is there that is no socket; take another path")
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(address.path)
        except ConnectionRefusedError:
            os.unlink(address.path)
            return
    raise Invalid(f"address {address}: another server listens there; end it, or take another path")


def _unix(path: str, text: str) -> Address:
    if not os.path.isabs(path):
        path = os.path.abspath(path) if path else path
    if not path:
        raise Invalid(f"address {text!r} names no path: write unix:/path.sock")
    if len(os.fsencode(path)) > MAX_PATH_BYTES:
        raise Invalid(f"address {text!r}: a socket's path has at most {MAX_PATH_BYTES} bytes; take a shorter one")
    return Address(path=path)
