"""Requests of a model: taken in, kept, put in line by their numbers; and the answers to all requests.

One that cannot be carried out, for its name or its path, is taken in all the same, and fails: its number is used up.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from openrl.errors import RequestError
from openrl.queue import Failed
from openrl.service.answers import Accepted, Answered, Done, Failure, Pending, decode_value
from openrl.service.checkpoints import Checkpoints
from openrl.service.core import Core, refused
from openrl.service.orders import Load, Order, Save, encode_order, kind_of
from openrl.service.paths import path_of
from openrl.store import CheckpointKind, Model, Request, Result
from openrl.work import ForwardBackward, OptimStep


class Requests:
    def __init__(self, core: Core, checkpoints: Checkpoints) -> None:
        self._core = core
        self._checkpoints = checkpoints

    async def submit(
        self, owner: str, model_id: str, seq_id: int, kind: str, payload: bytes, work: ForwardBackward | OptimStep
    ) -> Accepted:
        """Take in a request that came over the wire; `kind` tells the decoder what `payload` is."""
        request = self._request(owner, model_id, seq_id, kind, payload)
        mutates = not (isinstance(work, ForwardBackward) and work.forward_only)
        request_id = await self._core.take(msgspec.structs.replace(request, mutates=mutates), payload, work, None)
        return Accepted(request_id, model_id)

    async def refuse(self, owner: str, model_id: str, seq_id: int, payload: bytes, error: str) -> Accepted:
        """Take in a request that could not be understood: it fails at once, and its number is used up."""
        request = self._request(owner, model_id, seq_id, "refused", payload)
        return await self._refuse(request, error)

    async def save_state(
        self,
        owner: str,
        model_id: str,
        seq_id: int,
        name: str,
        *,
        ttl_seconds: int | None = None,
        overwrite: bool = False,
        user_metadata: Mapping[str, Any] | None = None,
    ) -> Accepted:
        """Save weights and optimizer, to train on from them."""
        return await self._save(owner, model_id, seq_id, "training", name, None, ttl_seconds, overwrite, user_metadata)

    async def save_sampler(
        self,
        owner: str,
        model_id: str,
        seq_id: int,
        name: str | None,
        *,
        sampling_session_seq_id: int | None = None,
        ttl_seconds: int | None = None,
        user_metadata: Mapping[str, Any] | None = None,
    ) -> Accepted:
        """Save weights to sample from: under a name, or without one for the sampling session of this number."""
        sampler_id = None
        if sampling_session_seq_id is not None:
            sampler_id = f"{self._model(owner, model_id).session_id}:sample:{sampling_session_seq_id}"
        return await self._save(owner, model_id, seq_id, "sampler", name, sampler_id, ttl_seconds, True, user_metadata)

    async def save_external(
        self, owner: str, model_id: str, seq_id: int, name: str, *, ttl_seconds: int | None = None
    ) -> Accepted:
        """Save weights in the form that others read."""
        return await self._save(owner, model_id, seq_id, "external", name, None, ttl_seconds, True, None)

    async def load_state(self, owner: str, model_id: str, seq_id: int, path: str, *, optimizer: bool) -> Accepted:
        """Take over a checkpoint's weights, in this model's line."""
        said = msgspec.msgpack.encode((path, optimizer))
        request = self._request(owner, model_id, seq_id, "own:load", said)
        try:
            checkpoint = self._checkpoints.readable(owner, path, "training")
        except RequestError as error:
            return await self._refuse(request, str(error))
        request = msgspec.structs.replace(request, mutates=True, settles=True)
        return await self._order(request, Load(checkpoint.folder, path, optimizer))

    async def retrieve(self, owner: str, request_id: str, wait_s: float) -> Pending | Answered:
        """The answer; if it does not come in this time, what the request waits for."""
        answer = self._answer(owner, request_id)
        if answer is None and wait_s > 0:
            await self._core.inbox.wait(request_id, wait_s)
            answer = self._answer(owner, request_id)
        return self._pending(request_id) if answer is None else answer

    async def cancel(self, owner: str, request_id: str) -> bool:
        """Fail a request that still waits. False: it runs, or has its answer, and goes on as if nothing was said."""
        self._core.owned(Request, request_id, owner)
        return self._core.engine.cancelled(request_id, Failed("cancelled at the client's wish", "user"))

    def _model(self, owner: str, model_id: str) -> Model:
        return self._core.owned(Model, model_id, owner)

    def _request(self, owner: str, model_id: str, seq_id: int, kind: str, said: bytes) -> Request:
        self._model(owner, model_id)
        if not 1 <= seq_id < 2**53:
            raise RequestError(f"seq_id is {seq_id}: a model's requests are numbered from 1")
        return self._core.new_request(owner, seq_id, kind, said, model_id)

    async def _save(
        self,
        owner: str,
        model_id: str,
        seq_id: int,
        kind: CheckpointKind,
        name: str | None,
        sampler_id: str | None,
        ttl_seconds: int | None,
        overwrite: bool,
        user_metadata: Mapping[str, Any] | None,
    ) -> Accepted:
        metadata = None if user_metadata is None else dict(user_metadata)
        said = msgspec.json.encode((kind, name, sampler_id, ttl_seconds, overwrite, metadata), order="sorted")
        request = self._request(owner, model_id, seq_id, "own:save", said)
        try:
            path = _save_path(model_id, kind, name, sampler_id, ttl_seconds)
        except RequestError as error:
            return await self._refuse(request, str(error))
        folder = str(self._core.checkpoints / request.request_id)
        request = msgspec.structs.replace(request, settles=kind == "training")
        return await self._order(request, Save(kind, folder, name, path, sampler_id, ttl_seconds, overwrite, metadata))

    async def _order(self, request: Request, order: Order) -> Accepted:
        assert request.model_id is not None
        assert request.kind == kind_of(order)
        return Accepted(await self._core.take(request, encode_order(order), None, None), request.model_id)

    async def _refuse(self, request: Request, error: str) -> Accepted:
        request = refused(request, error, self._core.clock())
        assert request.model_id is not None
        return Accepted(await self._core.take(request, b"", None, None), request.model_id)

    def _answer(self, owner: str, request_id: str) -> Answered | None:
        request = self._core.owned(Request, request_id, owner)
        if request.state == "waiting":
            return None
        if request.state == "failed":
            return Failure(request.error or "", "user" if request.category == "user" else "server")
        recent = self._core.inbox.recent(request_id) if request.state == "done" else None
        return recent or self._kept(request)

    def _kept(self, request: Request) -> Answered:
        result = self._core.store.get(Result, request.request_id)
        if result is None:
            days = self._core.settings.result_ttl_s / 86_400
            text = f"the result of request {request.request_id} has expired: results are kept for {days:g} days"
            return Failure(text, "user")
        return Done(decode_value(request.result_type or "", result.body))

    def _pending(self, request_id: str) -> Pending:
        queue = self._core.ledger.queue
        if self._core.recorder.stalled:
            return Pending(
                "paused_capacity", "the server cannot write its store just now; who runs it finds the reason in its log"
            )
        request = self._core.store.get(Request, request_id)
        line = queue.line(request.model_id or "") if request else None
        ahead = queue.waiting_samples() if line is None else len(line.waiting())
        if ahead >= self._core.settings.crowded:
            return Pending("paused_capacity", f"{ahead} requests wait in this line")
        if line is not None and line.head() is None and line.waiting():
            return Pending("active", f"request {line.applied + 1} of model {line.model_id} has not arrived yet")
        return Pending("active", f"{ahead} requests wait in this line")


def _save_path(
    model_id: str, kind: CheckpointKind, name: str | None, sampler_id: str | None, ttl_seconds: int | None
) -> str | None:
    if ttl_seconds is not None and ttl_seconds <= 0:
        raise RequestError(f"ttl_seconds is {ttl_seconds}: a positive number of seconds, or none, is right")
    if name is not None:
        return path_of(model_id, kind, name)
    if sampler_id is None:
        raise RequestError("a save needs a path, or for sampling a sampling_session_seq_id")
    return None
