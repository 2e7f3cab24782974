"""What an agent must still know after it was killed: whose processes are whose, and the greatest tokens it has seen.

One small file, written whole and at once. It speaks of processes, so it is void after the host was started anew.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
from msgspec import Struct, field

from tsched.backends.process import Identity
from tsched.errors import BackendError, Invalid
from tsched.rpc.processes import this_host

Key = tuple[str, str]
"""Group and job."""

Place = tuple[str, str, str]
"""Group, node and job."""

MAX_TOKENS = 4096


class _Known(Struct):
    group: str
    job: str
    processes: list[Identity]


class _Token(Struct):
    group: str
    node: str
    job: str
    token: int


class _Content(Struct, forbid_unknown_fields=True):
    """`host` names the boot and the process namespace that the numbers belong to."""

    host: str = ""
    known: list[_Known] = field(default_factory=list)
    tokens: list[_Token] = field(default_factory=list)


class StateFile:
    """An agent's memory, in a file at `path`; without a path it is forgotten with the agent.

    Raises:
        Invalid: the file cannot be read, or is another one.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        content = self._read()
        self.known: dict[Key, list[Identity]] = {(each.group, each.job): each.processes for each in content.known}
        self.tokens: dict[Place, int] = {(each.group, each.node, each.job): each.token for each in content.tokens}

    def write(self) -> None:
        """Raises `BackendError` where that cannot be; what was there before is then as it was."""
        if self._path is None:
            return
        beside = self._path.with_name(f".{self._path.name}.{os.getpid()}.new")
        try:
            beside.write_bytes(msgspec.json.encode(self._content()))
            os.replace(beside, self._path)
        except OSError as error:
            raise BackendError(f"the agent's state cannot be written to {self._path}: {error.strerror}") from error

    def _content(self) -> _Content:
        for place in list(self.tokens)[:-MAX_TOKENS]:  # those that were raised longest ago
            del self.tokens[place]
        return _Content(
            this_host(),
            [_Known(*key, processes) for key, processes in self.known.items()],
            [_Token(*place, token) for place, token in self.tokens.items()],
        )

    def _read(self) -> _Content:
        if self._path is None or not self._path.exists():
            return _Content()
        try:
            content = msgspec.json.decode(self._path.read_bytes(), type=_Content)
        except OSError as error:
            raise Invalid(f"{self._path}: cannot be read: {error.strerror or error}") from error
        except msgspec.MsgspecError as error:
            raise Invalid(
                f"{self._path}: not the state of an agent ({error}): move it away, or name another"
            ) from error
        return content if content.host == this_host() else _Content()
