"""Training runs and their checkpoints: listed, published, deleted, downloaded."""

from __future__ import annotations

from fastapi import APIRouter, Response

from openrl.routes import models, stored
from openrl.routes.call import API, Caller, Limit, Offset, answer, nothing
from openrl.wire import checkpoints

router = APIRouter(prefix=API)

ONE = "/training_runs/{run_id}/checkpoints/{kind}/{name}"


@router.get("/training_runs")
async def runs(call: Caller, limit: Limit = 20, offset: Offset = 0) -> Response:
    page = await call.service.models.list(call.owner, limit, offset)
    shown = [await stored.run(call.service, call.owner, model) for model in page.items]
    cursor = checkpoints.Cursor(offset=offset, limit=limit, total_count=page.total)
    return answer(checkpoints.TrainingRunList(training_runs=shown, cursor=cursor))


@router.get("/training_runs/{run_id}")
async def run(call: Caller, run_id: str) -> Response:
    return answer(await stored.run(call.service, call.owner, await call.service.models.get(call.owner, run_id)))


@router.get("/training_runs/{run_id}/checkpoints")
async def of_run(call: Caller, run_id: str) -> Response:
    await call.service.models.get(call.owner, run_id)
    page = await call.service.checkpoints.list(call.owner, run_id, stored.ALL)
    return answer(checkpoints.CheckpointList(checkpoints=[stored.checkpoint(one) for one in page.items]))


@router.get("/checkpoints")
async def of_owner(call: Caller, limit: Limit = 100, offset: Offset = 0) -> Response:
    page = await call.service.checkpoints.list(call.owner, None, limit, offset)
    cursor = checkpoints.Cursor(offset=offset, limit=limit, total_count=page.total)
    shown = [stored.checkpoint(one) for one in page.items]
    return answer(checkpoints.CheckpointList(checkpoints=shown, cursor=cursor))


@router.delete(ONE)
async def delete(call: Caller, run_id: str, kind: str, name: str) -> Response:
    await call.service.checkpoints.delete(call.owner, stored.path(run_id, kind, name))
    return nothing()


@router.post(ONE + "/publish")
async def publish(call: Caller, run_id: str, kind: str, name: str) -> Response:
    """Every key of this server may read it from now on."""
    await call.service.checkpoints.publish(call.owner, stored.path(run_id, kind, name))
    return nothing()


@router.delete(ONE + "/publish")
async def unpublish(call: Caller, run_id: str, kind: str, name: str) -> Response:
    await call.service.checkpoints.unpublish(call.owner, stored.path(run_id, kind, name))
    return nothing()


@router.put(ONE + "/ttl")
async def set_ttl(call: Caller, run_id: str, kind: str, name: str) -> Response:
    ask = await call.message(checkpoints.SetTtl)
    path = stored.path(run_id, kind, name)
    await call.service.checkpoints.set_ttl(call.owner, path, models.ttl(ask.ttl_seconds))
    return nothing()


@router.post("/weights_info")
async def weights_info(call: Caller) -> Response:
    ask = await call.message(checkpoints.GetWeightsInfo)
    return answer(stored.weights_info(await call.service.checkpoints.weights_info(call.owner, ask.tinker_path)))


@router.post("/copy_weights")
async def copy_weights(call: Caller) -> Response:
    """Into a slot of a session of the caller's, or into a project, which a session of its own stands for."""
    ask = await call.message(checkpoints.CopyWeights)
    ttl = models.ttl(ask.ttl_seconds)
    session_id = ask.session_id or await stored.session_for_copy(call, ask)
    copied = await call.service.checkpoints.copy(
        call.owner, ask.source_path, session_id, ask.model_seq_id or 0, ttl_seconds=ttl
    )
    return answer(checkpoints.WeightsCopied(tinker_path=copied))
