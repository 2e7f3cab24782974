"""Where a scheduler listens: `unix:/path.sock`, or `host:port`. Read here, and nowhere else."""

from __future__ import annotations

import ipaddress
import os
import socket
import stat
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import quote, unquote

from tsched.errors import Invalid

# What `sockaddr_un` holds on Linux, less the closing zero.
MAX_PATH_BYTES = 107
PATIENCE_S = 1.0


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
    def target(self) -> str:
        """What gRPC is given: it takes a path for a URI's, in which some characters must be written otherwise."""
        return f"unix:{quote(self.path)}" if self.path else str(self)

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


def same_host(peer: str) -> bool:
    """Whether gRPC's name of a peer is that of a process on this host."""
    if peer.startswith("unix:"):
        return True
    host = unquote(peer.partition(":")[2].rpartition(":")[0]).strip("[]")
    return Address(host=host).local


def check_local(address: Address, insecure: bool) -> None:
    """Nothing here is encrypted: what others can reach must be asked for."""
    if not address.local and not insecure:
        raise Invalid(
            f"address {address}: connections are neither encrypted nor authenticated, so only this host is served: "
            "use unix:/path.sock or 127.0.0.1, or say insecure=True"
        )


def clear_way(address: Address) -> None:
    """Remove a socket that a dead server left behind, and make its folder where there is none.

    Raises:
        Invalid: a living server's socket, or a file, is in the way, or the folder is not ours to write in.
    """
    try:
        os.makedirs(os.path.dirname(address.path), exist_ok=True)
        if not os.path.lexists(address.path):
            return
        if not stat.S_ISSOCK(os.lstat(address.path).st_mode):
            raise Invalid(f"address {address}: a file is there that is no socket; take another path")
        if not _listens(address.path):
            os.unlink(address.path)
            return
    except OSError as error:
        raise Invalid(f"address {address} cannot be served: {error}") from error
    raise Invalid(f"address {address}: another server listens there; end it, or take another path")


def _listens(path: str) -> bool:
    """Whether somebody serves this socket; one that is frozen, so that nobody gets in, counts."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(PATIENCE_S)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            return False
        except (TimeoutError, BlockingIOError):
            return True
    return True


def _unix(path: str, text: str) -> Address:
    if not os.path.isabs(path):
        path = os.path.abspath(path) if path else path
    if not path:
        raise Invalid(f"address {text!r} names no path: write unix:/path.sock")
    if len(os.fsencode(path)) > MAX_PATH_BYTES:
        raise Invalid(f"address {text!r}: a socket's path has at most {MAX_PATH_BYTES} bytes; take a shorter one")
    return Address(path=path)
