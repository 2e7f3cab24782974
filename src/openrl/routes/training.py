"""Models in training: made, trained, saved, loaded."""

from __future__ import annotations

from fastapi import APIRouter, Response

from openrl.routes import models, submit
from openrl.routes.call import API, Call, Caller, answer
from openrl.service import Accepted
from openrl.wire import training
from openrl.wire.refusal import Malformed

router = APIRouter(prefix=API)


@router.post("/forward_backward")
async def forward_backward(call: Caller) -> Response:
    batch = submit.proto_batch(call) if call.is_protobuf else submit.json_batch(call, forward_only=False)
    return submit.promise(await batch)


@router.post("/forward")
async def forward(call: Caller) -> Response:
    """Versions up to 0.24; later ones set `forward_only`."""
    return submit.promise(await submit.json_batch(call, forward_only=True))


@router.post("/optim_step")
async def optim_step(call: Caller) -> Response:
    return submit.promise(await submit.step(call))


@router.post("/create_model")
async def create_model(call: Caller) -> Response:
    ask = await call.message(training.CreateModel)
    spec = models.spec(ask, call.limits)
    metadata = models.metadata(ask.user_metadata, call.limits)
    accepted = await call.service.models.create(
        call.owner,
        ask.session_id,
        ask.model_seq_id,
        spec,
        seeded=models.seeded(ask),
        user_metadata=metadata,
    )
    return submit.promise(accepted)


@router.post("/get_info")
async def get_info(call: Caller) -> Response:
    ask = await call.message(training.GetInfo)
    return answer(models.info(await call.service.models.get(call.owner, ask.model_id), call.service.bases()))


@router.post("/unload_model")
async def unload_model(call: Caller) -> Response:
    """Versions up to 0.24 say when they are done with a model."""
    ask = await call.message(training.UnloadModel)
    await call.service.models.unload(call.owner, ask.model_id)
    return answer(training.Unloaded(model_id=ask.model_id, request_id=f"unloaded:{ask.model_id}"))


@router.post("/save_weights")
async def save_weights(call: Caller) -> Response:
    return await submit.numbered(call, training.SaveWeights, save_state)


async def save_state(call: Call, ask: training.SaveWeights) -> Accepted:
    return await call.service.requests.save_state(
        call.owner,
        ask.model_id,
        ask.seq_id,
        ask.path,
        ttl_seconds=models.ttl(ask.ttl_seconds),
        overwrite=ask.overwrite,
        user_metadata=models.metadata(ask.user_metadata, call.limits),
    )


@router.post("/save_weights_for_sampler")
async def save_weights_for_sampler(call: Caller) -> Response:
    return await submit.numbered(call, training.SaveWeightsForSampler, save_sampler)


async def save_sampler(call: Call, ask: training.SaveWeightsForSampler) -> Accepted:
    return await call.service.requests.save_sampler(
        call.owner,
        ask.model_id,
        ask.seq_id,
        ask.path,
        sampling_session_seq_id=ask.sampling_session_seq_id,
        ttl_seconds=models.ttl(ask.ttl_seconds),
        user_metadata=models.metadata(ask.user_metadata, call.limits),
    )


@router.post("/save_weights_external")
async def save_weights_external(call: Caller) -> Response:
    return await submit.numbered(call, training.SaveWeightsExternal, save_external)


async def save_external(call: Call, ask: training.SaveWeightsExternal) -> Accepted:
    if ask.age_encryption_recipients:
        raise Malformed("age_encryption_recipients: this server does not encrypt what it exports; leave them out")
    save = call.service.requests.save_external
    return await save(call.owner, ask.model_id, ask.seq_id, ask.path, ttl_seconds=models.ttl(ask.ttl_seconds))


@router.post("/load_weights")
async def load_weights(call: Caller) -> Response:
    """As a new model, or in older versions into one that has been made and not used."""
    ask = await call.message(training.LoadWeights)
    if ask.model_id is None:
        return submit.promise(await load_new(call, ask))
    return await submit.numbered(call, training.LoadIntoModel, load_into)


async def load_new(call: Call, ask: training.LoadWeights) -> Accepted:
    if ask.session_id is None or ask.model_seq_id is None:
        raise Malformed("load_weights needs session_id and model_seq_id, or model_id and seq_id")
    models.check_optimizer(ask.optimizer_config)
    return await call.service.models.load(
        call.owner,
        ask.session_id,
        ask.model_seq_id,
        ask.path,
        optimizer=ask.optimizer,
        base_model=ask.base_model,
        user_metadata=models.metadata(ask.user_metadata, call.limits),
    )


async def load_into(call: Call, ask: training.LoadIntoModel) -> Accepted:
    load = call.service.requests.load_state
    return await load(call.owner, ask.model_id, ask.seq_id, ask.path, optimizer=ask.optimizer)
