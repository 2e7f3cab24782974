"""The server's certificate, and whose certificates it believes."""

from __future__ import annotations

from pathlib import Path

import grpc

from tsched.errors import Invalid
from tsched.orchestrator.config import Tls


def credentials(tls: Tls) -> grpc.ServerCredentials:
    """What gRPC wants of them; raises `Invalid` for a file that cannot be read, or is no certificate."""
    key, cert = _pem(tls.key, "key"), _pem(tls.cert, "cert")
    authority = None if tls.client_ca is None else _pem(tls.client_ca, "client_ca")
    return grpc.ssl_server_credentials([(key, cert)], authority, require_client_auth=authority is not None)


def _pem(path: Path, key: str) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise Invalid(f"tls.{key} {path}: cannot be read: {error.strerror or error}") from None
    if b"-----BEGIN " not in content:
        raise Invalid(f"tls.{key} {path}: no PEM file: one begins with -----BEGIN")
    return content
