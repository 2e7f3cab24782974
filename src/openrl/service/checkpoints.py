"""The register of checkpoints. Deleting one takes its name away; its folder goes when nothing needs it any more."""

from __future__ import annotations

from typing import Any

import msgspec

from openrl.errors import RequestError, Unknown
from openrl.service.answers import Page
from openrl.service.core import Core
from openrl.service.paths import check_path, path_of
from openrl.store import Add, Change, Checkpoint, CheckpointKind, Model, Remove, Session
from openrl.work import ModelSpec


class Checkpoints:
    def __init__(self, core: Core) -> None:
        self._core = core

    async def list(self, owner: str, run_id: str | None = None, limit: int = 100, offset: int = 0) -> Page[Checkpoint]:
        """The owner's, or those of one training run, the newest first."""
        equal = {"owner": owner}
        if run_id is not None:
            self._core.owned(Model, run_id, owner)
            equal["model_id"] = run_id
        store = self._core.store
        found = store.find(Checkpoint, limit=limit, offset=offset, newest_first=True, **equal)
        return Page(found, store.count(Checkpoint, **equal))

    async def get(self, owner: str, path: str) -> Checkpoint:
        return self._core.owned(Checkpoint, check_path(path), owner)

    async def weights_info(self, owner: str, path: str) -> ModelSpec:
        """What the checkpoint's model is made of."""
        return self.readable(owner, path).spec

    async def delete(self, owner: str, path: str) -> None:
        await self.get(owner, path)
        await self._core.record(Remove(Checkpoint, path))

    async def publish(self, owner: str, path: str) -> None:
        """Let every owner read it."""
        await self._change(owner, path, public=True)

    async def unpublish(self, owner: str, path: str) -> None:
        await self._change(owner, path, public=False)

    async def set_ttl(self, owner: str, path: str, ttl_seconds: int | None) -> None:
        """Keep it so long from now on, or with None for good."""
        if ttl_seconds is not None and ttl_seconds <= 0:
            raise RequestError(f"ttl_seconds is {ttl_seconds}: a positive number of seconds, or null, is right")
        expires_us = None if ttl_seconds is None else self._core.clock() + ttl_seconds * 1_000_000
        await self._change(owner, path, expires_us=expires_us)

    async def copy(
        self, owner: str, source_path: str, session_id: str, model_seq_id: int, ttl_seconds: int | None = None
    ) -> str:
        """Give a checkpoint that this owner may read a path under a model of his own. Nothing is written twice."""
        source = self.readable(owner, source_path)
        self._core.owned(Session, session_id, owner)
        model_id, now_us = f"{session_id}:train:{model_seq_id}", self._core.clock()
        path = path_of(model_id, source.kind, source.name)
        there = self._core.store.get(Checkpoint, path)
        if there is not None and there.folder != source.folder:
            raise RequestError(f"checkpoint {path!r} exists and is another one: copy to another number, or delete it")
        expires_us = None if ttl_seconds is None else now_us + ttl_seconds * 1_000_000
        copied = msgspec.structs.replace(
            source, path=path, model_id=model_id, owner=owner, created_us=now_us, expires_us=expires_us, public=False
        )
        await self._core.record(Add(copied, replace=True))
        return path

    def readable(self, owner: str, path: str, kind: CheckpointKind | None = None) -> Checkpoint:
        """One that this owner may read: his own, or a public one; `kind` is what it must be."""
        found = self._core.store.get(Checkpoint, check_path(path))
        if found is None or (found.owner != owner and not found.public) or self._is_over(found):
            raise Unknown(
                f"checkpoint {path!r} is not known: it was never saved, has expired, was deleted, or is not yours"
            )
        if kind is not None and found.kind != kind:
            raise RequestError(
                f"checkpoint {path!r} is a {found.kind} checkpoint, and a {kind} checkpoint is needed here"
            )
        return found

    def _is_over(self, found: Checkpoint) -> bool:
        return found.expires_us is not None and found.expires_us <= self._core.clock()

    async def _change(self, owner: str, path: str, **values: Any) -> None:
        await self.get(owner, path)
        await self._core.record(Change(Checkpoint, path, values))
