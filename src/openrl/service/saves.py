"""Saving: the worker writes a folder that is written once; then it is published, together with the answer."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from openrl.errors import RequestError
from openrl.service.answers import Saved
from openrl.service.orders import Save, work_of
from openrl.service.outcome import Outcome
from openrl.store import Add, Checkpoint, Model, Sampler, Store, Write
from openrl.work import SaveResult
from openrl.worker import Worker


def save(store: Store, worker: Worker, model: Model, order: Save, now_us: int) -> Callable[[], Outcome]:
    """What the worker's thread is to call. A name that is taken is refused here, when all saves before it are done."""
    if order.path is not None and not order.overwrite and store.get(Checkpoint, order.path) is not None:
        raise RequestError(f"checkpoint {order.path} exists: choose another name, delete it, or ask to overwrite it")

    def call() -> Outcome:
        _clear(Path(order.folder))
        result = worker.run(model.model_id, work_of(order))
        assert isinstance(result, SaveResult)
        value = Saved(order.path, order.sampler_id, result.size_bytes)
        return Outcome(value, publish=_published(model, order, result.size_bytes, now_us))

    return call


def _clear(folder: Path) -> None:
    """A service that died between writing and publishing has left a folder that nobody knows of."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    if folder.exists():
        shutil.rmtree(folder)


def _published(model: Model, order: Save, size_bytes: int, now_us: int) -> tuple[Write, ...]:
    writes: list[Write] = []
    if order.path is not None:
        writes.append(Add(_checkpoint(model, order, size_bytes, now_us), replace=True))
    if order.sampler_id is not None:
        writes.append(Add(_sampler(model, order, now_us), replace=True))
    return tuple(writes)


def _checkpoint(model: Model, order: Save, size_bytes: int, now_us: int) -> Checkpoint:
    assert order.path is not None
    assert order.name is not None
    expires_us = None if order.ttl_seconds is None else now_us + order.ttl_seconds * 1_000_000
    return Checkpoint(
        order.path,
        model.model_id,
        model.owner,
        order.kind,
        order.name,
        order.folder,
        size_bytes,
        now_us,
        model.spec,
        expires_us,
        user_metadata=order.user_metadata,
    )


def _sampler(model: Model, order: Save, now_us: int) -> Sampler:
    assert order.sampler_id is not None
    base = model.spec.base_model
    ephemeral = order.path is None
    return Sampler(
        order.sampler_id,
        model.session_id,
        model.owner,
        base,
        now_us,
        now_us,
        order.folder,
        order.path,
        ephemeral=ephemeral,
    )
