"""Sampling sessions, and samples from them. A session's weights never change."""

from __future__ import annotations

import msgspec

from openrl.errors import RequestError
from openrl.service.answers import SampleAccepted
from openrl.service.checkpoints import Checkpoints
from openrl.service.completions import Completion, Completions
from openrl.service.core import Core
from openrl.service.seeds import derive_seed
from openrl.store import Add, Change, Sampler, Session, Write
from openrl.work import Sample

_STALE_US = 60_000_000


class Samplers:
    def __init__(self, core: Core, checkpoints: Checkpoints) -> None:
        self._core = core
        self._checkpoints = checkpoints
        self._completions = Completions(core.store, core.inbox, core.clock)

    async def create(
        self,
        owner: str,
        session_id: str,
        sampling_session_seq_id: int,
        *,
        base_model: str | None = None,
        model_path: str | None = None,
    ) -> str:
        """A sampling session from a base model, or from a sampler checkpoint. The same number gives the same one."""
        self._core.owned(Session, session_id, owner)
        sampler = self._sampler(owner, f"{session_id}:sample:{sampling_session_seq_id}", base_model, model_path)
        sampler = msgspec.structs.replace(sampler, session_id=session_id)
        known = self._core.store.get(Sampler, sampler.sampler_id)
        if known is None:
            await self._core.record(Add(sampler, replace=True))
        elif (known.base_model, known.model_path) != (sampler.base_model, sampler.model_path):
            raise RequestError(f"sampling session {known.sampler_id} exists with other weights: take another number")
        return sampler.sampler_id

    async def get(self, owner: str, sampling_session_id: str) -> Sampler:
        return self._core.owned(Sampler, sampling_session_id, owner)

    async def sample(
        self,
        owner: str,
        sampling_session_id: str,
        seq_id: int,
        kind: str,
        payload: bytes,
        sample: Sample,
        *,
        seeded: bool,
    ) -> SampleAccepted:
        """Take in a request for samples; with `seeded` false its seed follows from the session and `seq_id`."""
        sampler = self._core.owned(Sampler, sampling_session_id, owner)
        if sampler.freed:
            raise RequestError(f"the weights of sampling session {sampling_session_id} have expired: save them again")
        if not 0 <= seq_id < 2**63:
            raise RequestError(f"seq_id is {seq_id}: 0 or more is right")
        seed = None if seeded else derive_seed(sampling_session_id, seq_id)
        request = self._core.new_request(owner, seq_id, kind, payload)
        request = msgspec.structs.replace(
            request, sampler_id=sampling_session_id, seed=seed, size=max(1, sample.num_samples)
        )
        request_id = await self._core.take(request, payload, sample, sampler, *self._used(sampler))
        return SampleAccepted(request_id, tuple(f"{request_id}-{number}" for number in range(sample.num_samples)))

    async def completions(
        self, owner: str, sampling_session_id: str, clone: int, cursor: int, wait_s: float
    ) -> tuple[list[Completion], int]:
        """Which samples of one client of the session have their answers, as far as it may not know; a new cursor."""
        self._core.owned(Sampler, sampling_session_id, owner)
        return await self._completions.poll(sampling_session_id, clone, cursor, wait_s)

    def _sampler(self, owner: str, sampler_id: str, base_model: str | None, model_path: str | None) -> Sampler:
        now_us = self._core.clock()
        if model_path is not None:
            found = self._checkpoints.readable(owner, model_path, "sampler")
            base = found.spec.base_model
            return Sampler(sampler_id, "", owner, base, now_us, now_us, found.folder, model_path)
        if base_model is None:
            raise RequestError("a sampling session needs base_model or model_path")
        names = [base.name for base in self._core.bases]
        if base_model not in names:
            raise RequestError(f"base model {base_model!r} is not served here: {', '.join(names)} are")
        return Sampler(sampler_id, "", owner, base_model, now_us, now_us)

    def _used(self, sampler: Sampler) -> tuple[Write, ...]:
        """That it is still in use is noted once a minute."""
        now_us = self._core.clock()
        if now_us - sampler.last_used_us < _STALE_US:
            return ()
        return (Change(Sampler, sampler.sampler_id, {"last_used_us": now_us}),)
