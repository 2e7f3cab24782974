"""Who calls, and what they may do: an owner's jobs, everything, or looking alone.

A bearer token, or the common name in a client's certificate, says who it is. Who needs neither: whoever can open a
socket that is its owner's alone, and, where no tokens are configured, whoever is on this host.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import grpc

from tsched.errors import AcquireRefused
from tsched.model import Job
from tsched.orchestrator.config import Config, Role, Token
from tsched.rpc.address import same_host

HEADER = "authorization"
SCHEME = "bearer "

Context = grpc.aio.ServicerContext[Any, Any]


class Refusal(AcquireRefused):
    """A call ends with this status; the text says why and what would be right."""

    def __init__(self, status: grpc.StatusCode, detail: str) -> None:
        super().__init__(detail, status.name.lower())
        self.status = status

    def __reduce__(self) -> tuple[type[Refusal], tuple[grpc.StatusCode, str]]:
        return Refusal, (self.status, self.detail)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls. `trusted`: from this host, so that what is said of processes can be true here.

    `known`: it has shown who it is; one who did not need to is of no owner, and is nobody's stranger.
    """

    owner: str
    role: Role
    trusted: bool = False
    known: bool = True

    def __str__(self) -> str:
        return f"{self.role} {self.owner!r}" if self.owner else self.role

    def check_may_change(self) -> None:
        """Raises `Refusal` for one who may only look."""
        if self.role == "read-only":
            raise _denied(f"{self} may look, and change nothing: take a token of role job or operator")

    def check_operator(self) -> None:
        """Raises `Refusal` for all but operators."""
        if self.role != "operator":
            raise _denied(f"{self} may not: this is for operators")

    def check_owns(self, name: str, job: Job | None) -> None:
        """Raises `Refusal` where this job is somebody else's; one that is not known yet is nobody's."""
        self.check_may_change()
        if self.role == "operator" or not self.known or job is None or job.owner == self.owner:
            return
        theirs = f"belongs to owner {job.owner!r}" if job.owner else "belongs to the operators"
        raise _denied(f"job {name!r} {theirs}, not to {self.owner!r}: take another name")


class Access:
    """Tells who calls, by the configuration's tokens and names."""

    def __init__(self, config: Config) -> None:
        self._by_hash = {token.sha256: token for token in config.tokens if token.sha256}
        self._by_name = {token.common_name: token for token in config.tokens if token.common_name}
        self._mutual = config.tls is not None and config.tls.client_ca is not None
        self._insecure = config.server.insecure
        self._path = bool(config.address.path)

    def caller(self, context: Context) -> Caller:
        """Who this call is from; raises `Refusal` for one who must say so and does not, or wrongly."""
        peer = context.peer()
        trusted = same_host(peer)
        bearer = _bearer(context)
        if bearer is not None:
            return self._of(self._known(bearer), trusted)
        name = _common_name(context) if self._mutual else ""
        if name:
            token = self._by_name.get(name)
            return Caller(name, "job", trusted) if token is None else self._of(token, trusted)
        if self._path:
            return Caller("", "operator", trusted)
        if self._by_hash or self._mutual:
            raise Refusal(
                grpc.StatusCode.UNAUTHENTICATED, "nobody may call without a token: send metadata authorization: Bearer"
            )
        return Caller("", "operator" if trusted else "job", trusted, known=trusted)

    def _known(self, bearer: str) -> Token:
        token = self._by_hash.get(hashlib.sha256(bearer.encode()).hexdigest())
        if token is None:
            raise Refusal(grpc.StatusCode.UNAUTHENTICATED, "this token is not known: ask an operator for another")
        return token

    def _of(self, token: Token, trusted: bool) -> Caller:
        return Caller(token.owner or token.common_name, token.role, trusted)


def _bearer(context: Context) -> str | None:
    for key, value in context.invocation_metadata() or ():
        if key == HEADER:
            text = value if isinstance(value, str) else value.decode(errors="replace")
            return text[len(SCHEME) :].strip() if text.lower().startswith(SCHEME) else ""
    return None


def _common_name(context: Context) -> str:
    name = next(iter(context.auth_context().get("x509_common_name", ())), b"")
    return name.decode(errors="replace")


def _denied(detail: str) -> Refusal:
    return Refusal(grpc.StatusCode.PERMISSION_DENIED, detail)
