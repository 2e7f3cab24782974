"""Sampling sessions, and samples from them."""

from __future__ import annotations

import structlog
from fastapi import APIRouter, Response

from openrl.routes.call import API, Caller, answer
from openrl.wire import decode, samples, sampling
from openrl.wire.futures import Promise
from openrl.wire.refusal import Malformed

router = APIRouter(prefix=API)


@router.post("/create_sampling_session")
async def create(call: Caller) -> Response:
    ask = await call.message(sampling.CreateSamplingSession)
    if ask.base_model is None and ask.model_path is None:
        raise Malformed("create_sampling_session needs base_model or model_path: there is nothing to sample from")
    sampling_session_id = await call.service.samplers.create(
        call.owner,
        ask.session_id,
        ask.sampling_session_seq_id,
        base_model=ask.base_model,
        model_path=ask.model_path,
    )
    return answer(sampling.SamplingSessionCreated(sampling_session_id=sampling_session_id))


@router.get("/samplers/{sampler_id}")
async def shown(call: Caller, sampler_id: str) -> Response:
    sampler = await call.service.samplers.get(call.owner, sampler_id)
    return answer(
        sampling.Sampler(sampler_id=sampler.sampler_id, base_model=sampler.base_model, model_path=sampler.model_path)
    )


@router.post("/asample")
async def asample(call: Caller) -> Response:
    """Numbers of samples are not waited for, so that a request that makes no sense is refused at once."""
    raw = await call.content()
    ask = decode.message(sampling.Sample, raw)
    work = samples.from_json(ask, call.limits)
    accepted = await call.service.samplers.sample(
        call.owner,
        ask.sampling_session_id,
        ask.seq_id,
        decode.SAMPLE,
        raw,
        work,
        seeded=ask.sampling_params.seed is not None,
    )
    structlog.contextvars.bind_contextvars(future=accepted.request_id)
    sequence_ids = list(accepted.sample_sequence_ids)
    return answer(Promise(request_id=accepted.request_id, sample_sequence_ids=sequence_ids))


@router.post("/join_sampling_session")
async def join(call: Caller) -> Response:
    """A number for one more client of the session: the next, from a start drawn anew in every life of the server."""
    ask = await call.message(sampling.JoinSamplingSession)
    await call.service.samplers.get(call.owner, ask.sampling_session_id)
    return answer(sampling.SamplingSessionJoined(client_counter=next(call.gateway.clients)))
