"""Sessions: one a run of a client program. One that has ended, or fell silent, comes back with its next request."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from openrl.queue import Failed
from openrl.service.answers import Page
from openrl.service.core import Core
from openrl.store import Add, Change, Model, Once, Request, Sampler, Session


class SessionInfo(Struct, frozen=True):
    session: Session
    training_run_ids: tuple[str, ...]
    sampler_ids: tuple[str, ...]


class Sessions:
    def __init__(self, core: Core) -> None:
        self._core = core

    async def create(
        self,
        owner: str,
        *,
        tags: Sequence[str] = (),
        user_metadata: Mapping[str, Any] | None = None,
        sdk_version: str = "",
        display_name: str | None = None,
        project_id: str | None = None,
        idempotency_key: str | None = None,
    ) -> str:
        """A new session's id; the same one for the same idempotency key."""
        once_key = f"{owner}/{idempotency_key}"
        known = self._core.store.get(Once, once_key) if idempotency_key else None
        if known is not None:
            return known.answer
        now_us = self._core.clock()
        session_id = f"session-{uuid.uuid4().hex}"
        session = Session(
            session_id,
            owner,
            now_us,
            now_us,
            tuple(tags),
            dict(user_metadata or {}),
            sdk_version,
            display_name,
            project_id,
        )
        once = [Add(Once(once_key, session_id, now_us))] if idempotency_key else []
        await self._core.record(Add(session), *once)
        return session_id

    async def heartbeat(self, owner: str, session_id: str) -> None:
        self._core.owned(Session, session_id, owner)
        await self._change(session_id, last_seen_us=self._core.clock(), ended_us=None)

    async def finish(self, owner: str, session_id: str, reason: str = "success", detail: str | None = None) -> None:
        """Its models' memory is freed a little later; what it has asked for is still carried out."""
        self._core.owned(Session, session_id, owner)
        await self._change(session_id, ended_us=self._core.clock(), end_reason=reason, end_detail=detail)

    async def cancel(self, owner: str, session_id: str) -> int:
        """Fail what waits, and free its models' memory. How many requests were cancelled."""
        self._core.owned(Session, session_id, owner)
        await self._change(session_id, ended_us=self._core.clock(), end_reason="cancelled")
        failed = Failed("cancelled: the session was", "user")
        count = sum(self._core.engine.cancelled(request.request_id, failed) for request in self._waiting(session_id))
        for model in self._core.store.find(Model, session_id=session_id):
            self._core.engine.released(model.model_id)
        return count

    async def list(self, owner: str, limit: int = 20, offset: int = 0) -> Page[Session]:
        store = self._core.store
        found = store.find(Session, limit=limit, offset=offset, newest_first=True, owner=owner)
        return Page(found, store.count(Session, owner=owner))

    async def get(self, owner: str, session_id: str) -> SessionInfo:
        session = self._core.owned(Session, session_id, owner)
        models = self._core.store.find(Model, session_id=session_id)
        samplers = self._core.store.find(Sampler, session_id=session_id)
        return SessionInfo(
            session, tuple(model.model_id for model in models), tuple(sampler.sampler_id for sampler in samplers)
        )

    async def assign_project(self, owner: str, session_id: str, project_id: str | None) -> None:
        self._core.owned(Session, session_id, owner)
        await self._change(session_id, project_id=project_id)

    async def _change(self, session_id: str, **values: Any) -> None:
        await self._core.record(Change(Session, session_id, values))

    def _waiting(self, session_id: str) -> Sequence[Request]:
        """The last first, so that none of them gets its turn on the way."""
        prefix = f"{session_id}:"
        waiting = self._core.store.waiting()
        return [
            request
            for request in reversed(waiting)
            if (request.model_id or request.sampler_id or "").startswith(prefix)
        ]
