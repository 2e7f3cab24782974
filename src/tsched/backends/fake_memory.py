"""The fake backend's memory: one job's state on one node, and the move that is under way there.

Nothing here knows of time or waits; `FakeBackend` does.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from tsched.backends import Presence
from tsched.costs import MoveKind
from tsched.errors import BackendError
from tsched.faults import DIED, INJECTED, Fault


@dataclass(slots=True, eq=False)
class Move:
    """One order that was begun; `ends` is on the clock of the event loop, None for never."""

    op: int
    kind: MoveKind
    fault: Fault
    ends: float | None
    done: bool = False
    error: BackendError | None = None

    @property
    def under_way(self) -> bool:
        return not self.done and self.error is None


@dataclass(slots=True, eq=False)
class Place:
    """One job's state on one node: on the device, on the host, or nowhere; `size_bytes` is what is accounted."""

    token: int = 0
    size_bytes: int = 0
    device: bytes | None = None
    host: bytes | None = None
    checksum: bytes = b""
    alive: bool = True
    lost: bool = False
    adopted: bool = False
    move: Move | None = None
    moves: dict[int, Move] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        return self.device is None and self.host is None

    @property
    def device_bytes(self) -> int:
        """What is charged to the device; a restore is charged from its start."""
        arriving = self.move is not None and self.move.kind == "restore" and self.move.under_way
        return self.size_bytes if self.device is not None or arriving else 0

    @property
    def host_bytes(self) -> int:
        """What is charged to the host; a park is charged from its start."""
        arriving = self.move is not None and self.move.kind == "park" and self.move.under_way
        return self.size_bytes if self.host is not None or arriving else 0

    def presence(self) -> Presence:
        """A state of unknown size is seen as one byte, so that it can be told from none."""
        seen = max(1, self.size_bytes)
        return Presence(seen if self.device is not None else 0, seen if self.host is not None else 0, self.alive)

    def create(self, contents: bytes, size_bytes: int, *, adopted: bool) -> None:
        self.device, self.host, self.size_bytes = contents, None, size_bytes
        self.alive, self.lost, self.adopted = True, False, adopted

    def clear(self) -> None:
        self.device = self.host = None
        self.size_bytes, self.checksum, self.alive, self.adopted = 0, b"", False, False

    def die(self) -> None:
        self.clear()
        self.lost = True

    def begin(self, move: Move) -> None:
        """A new move takes the place of one that is under way, which then never ends."""
        if self.move is not None and self.move.under_way:
            self.move.error = BackendError(f"{self.move.kind} (op {self.move.op}) was superseded by op {move.op}")
        self.moves[move.op] = self.move = move

    def forget(self, move: Move) -> None:
        """As if it had never been ordered."""
        if self.move is move:
            self.move = None
            self.moves.pop(move.op, None)

    def end(self, move: Move) -> None:
        """The move takes effect, whole or not at all; only once, and only if none took its place."""
        if self.move is not move or not move.under_way:
            return
        self.move = None
        if move.fault is Fault.FAIL:
            move.error = BackendError(INJECTED)
        elif move.kind == "discard":
            self.clear()
            self.lost = False
        elif move.fault is Fault.LOSE:
            self.die()
            move.error = BackendError(DIED)
        elif self.lost:
            move.error = BackendError(DIED)
        elif move.kind == "park":
            self._park()
        else:
            move.error = self._restore()
        move.done = move.error is None

    def _park(self) -> None:
        if self.device is not None:
            self.checksum = digest(self.device)
            self.host, self.device = bytes(bytearray(self.device)), None

    def _restore(self) -> BackendError | None:
        if self.host is None:
            return None
        if digest(self.host) != self.checksum:
            return BackendError("the parked state is damaged: its checksum is not the one that it was parked with")
        self.device, self.host = bytes(bytearray(self.host)), None
        return None


def digest(contents: bytes) -> bytes:
    return hashlib.blake2b(contents, digest_size=16).digest()


def contents_of(key: object, size: int) -> bytes:
    """Bytes that look random and depend on the key alone."""
    return hashlib.shake_128(repr(key).encode()).digest(size)


def worked_on(contents: bytes) -> bytes:
    """The next state after this one."""
    return contents_of(digest(contents), len(contents))
