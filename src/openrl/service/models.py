"""Models in training. The request that makes one is number 0 of its line; the client's own numbers begin with 1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from openrl.errors import RequestError
from openrl.service.answers import Accepted, Page
from openrl.service.checkpoints import Checkpoints
from openrl.service.core import Core
from openrl.service.orders import Create, encode_order, kind_of
from openrl.service.seeds import derive_seed
from openrl.store import Add, Model, Session
from openrl.work import ModelSpec


class Models:
    def __init__(self, core: Core, checkpoints: Checkpoints) -> None:
        self._core = core
        self._checkpoints = checkpoints

    async def create(
        self,
        owner: str,
        session_id: str,
        model_seq_id: int,
        spec: ModelSpec,
        *,
        seeded: bool = True,
        user_metadata: Mapping[str, Any] | None = None,
    ) -> Accepted:
        """Make a new model; with `seeded` false its seed follows from its id."""
        model = self._new(owner, session_id, model_seq_id, spec, user_metadata)
        if not seeded:
            seed = derive_seed(model.model_id) % 2**31
            model = msgspec.structs.replace(model, spec=msgspec.structs.replace(spec, seed=seed))
        return await self._take(model)

    async def load(
        self,
        owner: str,
        session_id: str,
        model_seq_id: int,
        path: str,
        *,
        optimizer: bool,
        base_model: str | None = None,
        user_metadata: Mapping[str, Any] | None = None,
    ) -> Accepted:
        """Make a model from a training checkpoint, with its optimizer where asked for."""
        checkpoint = self._checkpoints.readable(owner, path, "training")
        spec = checkpoint.spec
        if base_model not in (None, spec.base_model):
            raise RequestError(f"checkpoint {path!r} is of base model {spec.base_model!r}, not of {base_model!r}")
        model = self._new(owner, session_id, model_seq_id, spec, user_metadata)
        return await self._take(
            msgspec.structs.replace(model, source=checkpoint.folder, source_path=path, source_optimizer=optimizer)
        )

    async def get(self, owner: str, model_id: str) -> Model:
        return self._core.owned(Model, model_id, owner)

    async def list(self, owner: str, limit: int = 20, offset: int = 0) -> Page[Model]:
        store = self._core.store
        found = store.find(Model, limit=limit, offset=offset, newest_first=True, owner=owner)
        return Page(found, store.count(Model, owner=owner))

    async def unload(self, owner: str, model_id: str) -> None:
        """Free its memory once nothing waits; its next request brings it back."""
        self._core.owned(Model, model_id, owner)
        self._core.engine.released(model_id)

    def _new(
        self, owner: str, session_id: str, number: int, spec: ModelSpec, user_metadata: Mapping[str, Any] | None
    ) -> Model:
        self._core.owned(Session, session_id, owner)
        if number < 0:
            raise RequestError(f"model_seq_id is {number}: 0 or more is right")
        now_us = self._core.clock()
        metadata = None if user_metadata is None else dict(user_metadata)
        return Model(f"{session_id}:train:{number}", session_id, owner, spec, now_us, now_us, user_metadata=metadata)

    async def _take(self, model: Model) -> Accepted:
        order = Create()
        said = msgspec.msgpack.encode((model.spec, model.source_path, model.source_optimizer))
        request = self._core.new_request(model.owner, 0, kind_of(order), said, model.model_id)
        request = msgspec.structs.replace(request, mutates=True, settles=bool(model.source))
        request_id = await self._core.take(request, encode_order(order), None, None, Add(model))
        return Accepted(request_id, model.model_id)
