"""Who may ask an agent for what: orders come from its orchestrator, registrations from this host.

Without a configured orchestrator everybody who can connect is one. Nothing here knows what is asked for.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from tsched.agent.config import Orchestrator
from tsched.errors import TschedError
from tsched.rpc.address import same_host

_BEARER = "bearer "


class Refusal(TschedError, PermissionError):
    """The caller may not ask for this. `unknown`: it did not say who it is."""

    def __init__(self, text: str, unknown: bool = False) -> None:
        super().__init__(text, unknown)
        self.text, self.unknown = text, unknown

    def __str__(self) -> str:
        return self.text


class Call(Protocol):
    """What gRPC says of a call."""

    def peer(self) -> str: ...

    def auth_context(self) -> Mapping[str, Sequence[bytes]]: ...

    def invocation_metadata(self) -> Any: ...


class Access:
    """The rules of one agent."""

    def __init__(self, orchestrator: Orchestrator) -> None:
        self._token, self._name = orchestrator.token_sha256, orchestrator.common_name

    def orders(self, call: Call) -> None:
        """Raises `Refusal` for who is not the orchestrator."""
        if self._is_orchestrator(call):
            return
        if _token(call) is None and not _names(call):
            raise Refusal("this agent takes orders from its orchestrator alone: send its token or certificate", True)
        raise Refusal("this agent takes orders from its orchestrator alone, and this caller is another one")

    def registers(self, call: Call) -> None:
        """Raises `Refusal` for who is neither of this host nor the orchestrator."""
        if not same_host(call.peer()) and not self._is_orchestrator(call):
            raise Refusal("processes are registered from their own host, or by the orchestrator")

    def _is_orchestrator(self, call: Call) -> bool:
        if not self._token and not self._name:
            return True
        return self._has_token(_token(call)) or (bool(self._name) and self._name in _names(call))

    def _has_token(self, token: str | None) -> bool:
        if not self._token or token is None:
            return False
        return hmac.compare_digest(hashlib.sha256(token.encode()).hexdigest(), self._token)


def _token(call: Call) -> str | None:
    """The bearer token that came with the call."""
    for key, value in call.invocation_metadata() or ():
        if key == "authorization" and isinstance(value, str) and value.lower().startswith(_BEARER):
            return value[len(_BEARER) :].strip()
    return None


def _names(call: Call) -> list[str]:
    """The common name of the client's certificate, where one was shown and vouched for."""
    return [name.decode(errors="replace") for name in call.auth_context().get("x509_common_name", ())]
