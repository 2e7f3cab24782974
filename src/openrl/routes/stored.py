"""Training runs and checkpoints, in the form that clients know."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from openrl.routes.call import Call
from openrl.service import Service, check_name
from openrl.store import Checkpoint, Model
from openrl.wire import checkpoints
from openrl.wire.message import Metadata
from openrl.wire.refusal import Malformed
from openrl.work import ModelSpec

ALL = 1_000_000
KINDS = ("weights", "sampler_weights", "external_weights")


def moment(time_us: int) -> datetime:
    """A time as clients write it."""
    return datetime.fromtimestamp(time_us / 1e6, UTC)


def as_text(metadata: Mapping[str, Any] | None) -> Metadata | None:
    """Clients read text only, and may have written anything."""
    if not metadata:
        return None
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in metadata.items()}


def path(run_id: str, kind: str, name: str) -> str:
    """The path of a checkpoint. Raises Malformed for what cannot be one."""
    if kind not in KINDS:
        raise Malformed(f"{kind!r} is no kind of checkpoint: they are {', '.join(KINDS)}")
    return f"tinker://{run_id}/{kind}/{check_name(name)}"


def checkpoint(one: Checkpoint) -> checkpoints.Checkpoint:
    return checkpoints.Checkpoint(
        checkpoint_id="/".join(one.path.split("/")[-2:]),
        checkpoint_type=one.kind,
        time=moment(one.created_us),
        tinker_path=one.path,
        size_bytes=one.size_bytes,
        public=one.public,
        user_metadata=as_text(one.user_metadata),
        expires_at=None if one.expires_us is None else moment(one.expires_us),
    )


async def run(service: Service, owner: str, model: Model) -> checkpoints.TrainingRun:
    """A model with its newest checkpoints."""
    page = await service.checkpoints.list(owner, model.model_id, ALL)
    newest = {one.kind: one for one in sorted(page.items, key=lambda one: one.created_us)}
    training, sampler = newest.get("training"), newest.get("sampler")
    return checkpoints.TrainingRun(
        training_run_id=model.model_id,
        base_model=model.spec.base_model,
        model_owner=model.owner,
        is_lora=model.spec.rank is not None,
        lora_rank=model.spec.rank,
        last_request_time=moment(model.last_request_us),
        corrupted=model.lost is not None,
        last_checkpoint=None if training is None else checkpoint(training),
        last_sampler_checkpoint=None if sampler is None else checkpoint(sampler),
        user_metadata=as_text(model.user_metadata),
    )


def weights_info(spec: ModelSpec) -> checkpoints.WeightsInfo:
    """What a client needs to make a model that the weights fit."""
    return checkpoints.WeightsInfo(
        base_model=spec.base_model,
        is_lora=spec.rank is not None,
        lora_rank=spec.rank,
        train_unembed=spec.train_unembed,
        train_mlp=spec.train_mlp,
        train_attn=spec.train_attn,
    )


async def session_for_copy(call: Call, ask: checkpoints.CopyWeights) -> str:
    """A new session of the project; the same one if the client tries again."""
    return await call.service.sessions.create(
        call.owner,
        display_name=f"copy of {ask.source_path}",
        project_id=ask.destination_project_id,
        idempotency_key=call.request.headers.get("x-idempotency-key"),
    )
