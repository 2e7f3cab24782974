"""What a request says about a model, checked, and what is told of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from openrl.store import Model
from openrl.wire import steps
from openrl.wire.limits import Limits
from openrl.wire.refusal import BeyondLimit, Malformed, beyond
from openrl.wire.training import CreateModel, LoraConfig, ModelData, ModelInfo, OptimizerConfig
from openrl.work import ModelSpec
from openrl.worker import Base

TEN_YEARS_S = 10 * 366 * 86_400


def spec(ask: CreateModel, limits: Limits) -> ModelSpec:
    """What to make, with seed 0 where none was given. Raises Malformed for what cannot be made of any base model."""
    check_optimizer(ask.optimizer_config)
    lora = ask.lora_config or LoraConfig()
    seed = (lora.seed or 0) % 2**63
    if ask.full:
        return ModelSpec(ask.base_model, rank=None, seed=seed)
    check_lora(lora, limits)
    return ModelSpec(
        base_model=ask.base_model,
        rank=lora.rank,
        seed=seed,
        train_attn=lora.train_attn,
        train_mlp=lora.train_mlp,
        train_unembed=lora.train_unembed,
    )


def check_lora(lora: LoraConfig, limits: Limits) -> None:
    """An adapter of some size, on something."""
    if lora.rank < 0:
        raise Malformed(f"lora_config.rank is {lora.rank}; give 1 or more, or 0 to train all parameters")
    if lora.rank > limits.rank:
        raise beyond("lora_config.rank", lora.rank, "rank", limits.rank, "ask for a smaller one")
    if not (lora.train_attn or lora.train_mlp or lora.train_unembed):
        raise Malformed("lora_config trains nothing: set one of train_attn, train_mlp and train_unembed")


def seeded(ask: CreateModel) -> bool:
    """Whether the client gave a seed."""
    return ask.lora_config is not None and ask.lora_config.seed is not None


def check_optimizer(asked: OptimizerConfig | None) -> None:
    """Only AdamW's formula is public."""
    if asked is not None:
        steps.check_optimizer(asked)


def metadata(asked: Mapping[str, Any] | None, limits: Limits) -> dict[str, Any]:
    """As given, if it is not too much, and can be kept."""
    try:
        size = len(msgspec.msgpack.encode(asked or {}))
    except OverflowError as error:
        raise Malformed("user_metadata holds a number beyond 64 bits: write it as text") from error
    if size > limits.metadata_bytes:
        raise BeyondLimit(
            f"user_metadata has {size} bytes, and this server allows {limits.metadata_bytes} (limits.metadata_bytes): "
            "keep what is large in a file of your own"
        )
    return dict(asked or {})


def ttl(asked: int | None) -> int | None:
    """Seconds to keep something; None is for good."""
    if asked is not None and not 0 < asked <= TEN_YEARS_S:
        raise Malformed(f"ttl_seconds is {asked}; give 1 to {TEN_YEARS_S}, or null to keep it for good")
    return asked


def info(model: Model, bases: Sequence[Base]) -> ModelInfo:
    """What a client that trains the model wants to know; its tokenizer is found by `tokenizer_id`."""
    name = model.spec.base_model
    base: Mapping[str, Base] = {base.name: base for base in bases if base.name == name}
    data = ModelData(
        model_name=name,
        arch=base[name].arch if name in base else None,
        tokenizer_id=base[name].tokenizer_id if name in base else None,
    )
    rank = model.spec.rank
    return ModelInfo(
        model_id=model.model_id, model_data=data, model_name=name, is_lora=rank is not None, lora_rank=rank
    )
