"""The samples that wait: one line a sampling session, drawn in batches of the same weights. Pure: no clock, no I/O."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass


@dataclass(slots=True)
class Waiting:
    """A request for `size` sequences from `weights`. One that may have killed a worker is drawn alone."""

    request_id: str
    session: str
    weights: str
    size: int = 1
    deaths: int = 0
    alone: bool = False


class Draws:
    """Within a session first come, first served."""

    def __init__(self, batch_sequences: int) -> None:
        self._room = batch_sequences
        self._sessions: dict[str, deque[Waiting]] = {}
        self._by_id: dict[str, Waiting] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._by_id

    def add(self, waiting: Waiting) -> None:
        self._sessions.setdefault(waiting.session, deque()).append(waiting)
        self._by_id[waiting.request_id] = waiting

    def put_back(self, waiting: Waiting) -> None:
        self._sessions.setdefault(waiting.session, deque()).appendleft(waiting)
        self._by_id[waiting.request_id] = waiting

    def remove(self, request_id: str) -> Waiting | None:
        waiting = self._by_id.pop(request_id, None)
        if waiting is not None:
            self._sessions[waiting.session].remove(waiting)
            self._tidy(waiting.session)
        return waiting

    def sessions(self) -> list[str]:
        return list(self._sessions)

    def take(self, session: str) -> list[Waiting]:
        """A batch that begins with the session's first; what room is left goes to others of the same weights."""
        line = self._sessions.get(session)
        if not line:
            return []
        batch = [self._pop(session)]
        if batch[0].alone:
            return batch
        for other in [session, *[name for name in self._sessions if name != session]]:
            self._fill(batch, other)
        return batch

    def _fill(self, batch: list[Waiting], session: str) -> None:
        room = self._room - sum(waiting.size for waiting in batch)
        while line := self._sessions.get(session):
            first = line[0]
            if first.alone or first.weights != batch[0].weights or first.size > room:
                return
            room -= first.size
            batch.append(self._pop(session))

    def _pop(self, session: str) -> Waiting:
        waiting = self._sessions[session].popleft()
        del self._by_id[waiting.request_id]
        self._tidy(session)
        return waiting

    def _tidy(self, session: str) -> None:
        if not self._sessions[session]:
            del self._sessions[session]
