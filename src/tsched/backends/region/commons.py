"""What several jobs use and no park moves, such as a frozen base: on the device once, and charged once."""

from __future__ import annotations

import threading

from tsched.backends.arena import Arena
from tsched.backends.region.claims import References, nbytes

OWNER = "(shared)"


class Commons:
    """Storages that jobs have named as shared, with who uses them. A storage is charged while anybody does."""

    def __init__(self, arena: Arena | None) -> None:
        self._arena = arena
        self._users: dict[int, set[str]] = {}
        self._charged: dict[int, int] = {}
        self._kept: References = {}
        self._lock = threading.Lock()

    def use(self, user: str, shared: References) -> None:
        """This is all that this user shares now. Raises `DeviceMemoryFull` where what is new does not fit; then it is
        as before."""
        with self._lock:
            self._join(user, shared)
            self._leave(user, [key for key, users in self._users.items() if user in users and key not in shared])

    def leave(self, user: str) -> None:
        with self._lock:
            self._leave(user, [key for key, users in self._users.items() if user in users])

    def _join(self, user: str, shared: References) -> None:
        new = {key: nbytes(reference) for key, reference in shared.items() if key not in self._users}
        if self._arena is not None and new:
            self._arena.charge(OWNER, sum(new.values()))
        self._charged |= new
        self._kept |= {key: shared[key] for key in new}
        for key in shared:
            self._users.setdefault(key, set()).add(user)

    def _leave(self, user: str, keys: list[int]) -> None:
        for key in keys:
            self._users[key].discard(user)
            if not self._users[key]:
                del self._users[key], self._kept[key]
                self._refund(self._charged.pop(key))

    def _refund(self, size_bytes: int) -> None:
        if self._arena is not None:
            self._arena.refund(OWNER, size_bytes)
