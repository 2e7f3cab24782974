"""The server's certificate and whose certificates it believes; and what agents are shown."""

from __future__ import annotations

from pathlib import Path

import grpc

from tsched.errors import Invalid
from tsched.orchestrator.agent_link import AgentCredentials
from tsched.orchestrator.config import Agents, Tls


def credentials(tls: Tls) -> grpc.ServerCredentials:
    """What gRPC wants of them; raises `Invalid` for a file that cannot be read, or is no certificate."""
    key, cert = _pem(tls.key, "tls.key"), _pem(tls.cert, "tls.cert")
    authority = None if tls.client_ca is None else _pem(tls.client_ca, "tls.client_ca")
    return grpc.ssl_server_credentials([(key, cert)], authority, require_client_auth=authority is not None)


def agent_credentials(agents: Agents) -> AgentCredentials:
    """How the orchestrator shows itself to agents; raises `Invalid` as `credentials` does."""
    token = ""
    if agents.token_file is not None:
        token = _read(agents.token_file, "agents.token_file").decode(errors="replace").strip()
        if not token or not token.isascii() or not token.isprintable():
            raise Invalid(f"agents.token_file {agents.token_file}: one line of printable ASCII, the token, is right")
    return AgentCredentials(
        token,
        None if agents.ca is None else _pem(agents.ca, "agents.ca"),
        None if agents.cert is None else _pem(agents.cert, "agents.cert"),
        None if agents.key is None else _pem(agents.key, "agents.key"),
    )


def _pem(path: Path, key: str) -> bytes:
    content = _read(path, key)
    if b"-----BEGIN " not in content:
        raise Invalid(f"{key} {path}: no PEM file: one begins with -----BEGIN")
    return content


def _read(path: Path, key: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise Invalid(f"{key} {path}: cannot be read: {error.strerror or error}") from None
