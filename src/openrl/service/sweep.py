"""What time takes away: the memory of models that nobody uses, results, checkpoints and snapshots past their time."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

from openrl.folders import meant
from openrl.service.core import Core
from openrl.service.orders import Load, decode_order
from openrl.store import Change, Checkpoint, Expire, Model, Remove, Request, Sampler, Session, Write


class Sweep:
    def __init__(self, core: Core) -> None:
        self._core = core

    async def once(self) -> None:
        """One round: what is past its time is let go of, then folders that nothing names are removed."""
        now_us = self._core.clock()
        self._free_memory(now_us)
        await self._core.record(*self._expired(now_us))
        if self._core.recorder.stalled:
            return  # what names a folder may not be written yet
        unnamed = [*self._unnamed_checkpoints(), *self._unnamed_states()]
        await asyncio.to_thread(_remove, unnamed)
        await asyncio.to_thread(self._core.store.compact)

    def _free_memory(self, now_us: int) -> None:
        for line in self._core.ledger.queue.lines():
            if line.position is None:
                self._core.ledger.queue.forgotten(line.model_id)
            elif self._is_left(line.model_id, now_us):
                self._core.engine.released(line.model_id)

    def _is_left(self, model_id: str, now_us: int) -> bool:
        model = self._core.store.get(Model, model_id)
        session = self._core.store.get(Session, model.session_id) if model else None
        if model is None or session is None:
            return True
        settings = self._core.settings
        last_us = max(session.last_seen_us, model.last_request_us, session.ended_us or 0)
        grace_s = settings.idle_s if session.ended_us is None else settings.ended_s
        return now_us - last_us > grace_s * 1e6

    def _expired(self, now_us: int) -> list[Write]:
        store, settings = self._core.store, self._core.settings
        results_us = now_us - int(settings.result_ttl_s * 1e6)
        writes: list[Write] = [Expire(results_us, results_us - int(settings.result_ttl_s * 1e6))]
        writes += [Remove(Checkpoint, checkpoint.path) for checkpoint in store.expired_checkpoints(now_us)]
        for sampler in store.find(Sampler, freed=False):
            if sampler.folder and self._is_over(sampler, now_us):
                writes.append(Change(Sampler, sampler.sampler_id, {"freed": True}))
        return writes

    def _is_over(self, sampler: Sampler, now_us: int) -> bool:
        """Nobody samples from it, nor from the checkpoint it was made of, which was deleted."""
        if now_us - sampler.last_used_us <= self._core.settings.sampler_ttl_s * 1e6:
            return False
        if self._core.store.count(Request, sampler_id=sampler.sampler_id, state="waiting"):
            return False
        return sampler.ephemeral or self._core.store.count(Checkpoint, folder=sampler.folder) == 0

    def _unnamed_checkpoints(self) -> Iterator[Path]:
        named = self._named()
        for folder in _folders(self._core.checkpoints):
            if str(folder) not in named and not self._is_being_written(folder):
                yield folder

    def _is_being_written(self, folder: Path) -> bool:
        """A checkpoint's folder has the name of the request that asked for it."""
        request = self._core.store.get(Request, meant(folder))
        return request is not None and request.state == "waiting"

    def _named(self) -> set[str]:
        """Folders that a checkpoint or a sampler has, or that a model may yet have to be loaded from."""
        store = self._core.store
        named = {checkpoint.folder for checkpoint in store.find(Checkpoint)}
        named |= {sampler.folder for sampler in store.find(Sampler, freed=False)}
        named |= {model.source for model in store.find(Model, durable_seq=-1, lost=None)}
        for request in store.kept("own:load"):
            order = decode_order(store.payload(request.request_id))
            if isinstance(order, Load):
                named.add(order.folder)
        return named

    def _unnamed_states(self) -> Iterator[Path]:
        leased = {lease.step for lease in self._core.ledger.queue.leases()}
        for of_model in _folders(self._core.states):
            model = self._core.store.get(Model, of_model.name)
            if any(getattr(step, "model_id", "") == of_model.name for step in leased):
                continue
            yield from (folder for folder in _folders(of_model) if model is None or str(folder) != model.durable_folder)


def _folders(parent: Path) -> list[Path]:
    return sorted(parent.iterdir()) if parent.is_dir() else []


def _remove(folders: list[Path]) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
