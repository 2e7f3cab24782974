"""Decoded requests that wait in memory, up to a number of bytes; the others are read again when their turn comes."""

from __future__ import annotations

from openrl.work import Sample, Work


class Held:
    """What a request weighs is what its payload weighed."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._held: dict[str, tuple[Work | Sample, int]] = {}

    def keep(self, request_id: str, work: Work | Sample, size_bytes: int) -> None:
        if self._bytes + size_bytes <= self._most_bytes:
            self._held[request_id] = (work, size_bytes)
            self._bytes += size_bytes

    def get(self, request_id: str) -> Work | Sample | None:
        found = self._held.get(request_id)
        return found[0] if found else None

    def drop(self, request_id: str) -> None:
        _, size_bytes = self._held.pop(request_id, (None, 0))
        self._bytes -= size_bytes
