"""Messages about what is stored: training runs and their checkpoints."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from openrl.wire.message import Message, Metadata, Ordinal
from openrl.wire.training import OptimizerConfig

CheckpointType = Literal["training", "sampler", "external"]


class Cursor(Message):
    offset: int
    limit: int
    total_count: int


class Checkpoint(Message):
    """`checkpoint_id` is the path without the run: `weights/NAME`."""

    checkpoint_id: str
    checkpoint_type: CheckpointType
    time: datetime
    tinker_path: str
    size_bytes: int | None = None
    public: bool = False
    user_metadata: Metadata | None = None
    expires_at: datetime | None = None


class CheckpointList(Message):
    checkpoints: list[Checkpoint]
    cursor: Cursor | None = None


class TrainingRun(Message):
    training_run_id: str
    base_model: str
    model_owner: str
    is_lora: bool
    last_request_time: datetime
    corrupted: bool = False
    lora_rank: int | None = None
    last_checkpoint: Checkpoint | None = None
    last_sampler_checkpoint: Checkpoint | None = None
    user_metadata: Metadata | None = None


class TrainingRunList(Message):
    training_runs: list[TrainingRun]
    cursor: Cursor


class SetTtl(Message):
    """None keeps the checkpoint for good."""

    ttl_seconds: int | None = None


class ExternalUrls(Message):
    """A signed address for each file, and when they lapse."""

    urls: dict[str, str]
    expires: datetime


class GetWeightsInfo(Message):
    tinker_path: str


class WeightsInfo(Message):
    base_model: str
    is_lora: bool
    lora_rank: int | None = None
    train_unembed: bool | None = None
    train_mlp: bool | None = None
    train_attn: bool | None = None
    optimizer_config: OptimizerConfig = OptimizerConfig()


class CopyWeights(Message):
    """To a project, or into a slot of a session."""

    source_path: str
    destination_project_id: str | None = None
    session_id: str | None = None
    model_seq_id: Ordinal | None = None
    ttl_seconds: int | None = None
    weights_access_token: str | None = None


class WeightsCopied(Message):
    tinker_path: str
