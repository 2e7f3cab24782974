"""How a gRPC server of ours comes to its socket: one with a path is its owner's alone, and gone with the server."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import grpc

from tsched.errors import Invalid
from tsched.rpc.address import Address, clear_way


@contextmanager
def listening(
    server: grpc.aio.Server, address: Address, credentials: grpc.ServerCredentials | None = None
) -> Iterator[Address]:
    """Open the socket, before the server starts; yields the address, with the port that was chosen for 0.

    Raises:
        Invalid: it is in use, or not ours to open.
    """
    if address.path:
        clear_way(address)
    bound = _bind(server, address, None if address.path else credentials)
    try:
        yield bound
    finally:
        if bound.path:
            with suppress(FileNotFoundError):
                os.unlink(bound.path)


def _bind(server: grpc.aio.Server, address: Address, credentials: grpc.ServerCredentials | None) -> Address:
    before = os.umask(0o177)
    try:
        if credentials is None:
            port = server.add_insecure_port(address.target)
        else:
            port = server.add_secure_port(address.target, credentials)
    except RuntimeError as error:
        raise Invalid(f"address {address} cannot be served: {error}") from error
    finally:
        os.umask(before)
    return address if address.path else Address(host=address.host, port=port)


def check_loop() -> None:
    """Raises `Invalid` outside asyncio."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        raise Invalid("gRPC's server runs under asyncio alone: take anyio's asyncio backend") from None
