"""Messages that make, change and store models in training. A `seq_id` counts the requests of one model from 1."""

from __future__ import annotations

from typing import Any, Literal

from openrl.wire.message import Many, Message, Ordinal, Some


class LoraConfig(Message):
    rank: int = 32
    seed: int | None = None
    train_unembed: bool = True
    train_mlp: bool = True
    train_attn: bool = True


class OptimizerConfig(Message):
    type: str = "adamw"


class Parameterization(Message):
    type: str = "lora"


class CreateModel(Message):
    """All parameters train where there is no `lora_config`, its rank is 0, or `parameterization` says full."""

    session_id: str
    model_seq_id: Ordinal = 0
    base_model: str
    user_metadata: dict[str, Any] | None = None
    lora_config: LoraConfig | None = None
    parameterization: Parameterization | None = None
    optimizer_config: OptimizerConfig = OptimizerConfig()

    @property
    def full(self) -> bool:
        """Whether it asks for full-parameter training."""
        asked = self.parameterization is not None and self.parameterization.type == "full"
        return asked or self.lora_config is None or self.lora_config.rank == 0


class GetInfo(Message):
    model_id: str


class ModelData(Message):
    arch: str | None = None
    model_name: str
    tokenizer_id: str | None = None


class ModelInfo(Message):
    model_id: str
    model_data: ModelData
    is_lora: bool
    lora_rank: int | None = None
    model_name: str
    optimizer_config: OptimizerConfig = OptimizerConfig()
    type: Literal["get_info"] = "get_info"


class JsonTensor(Message):
    """A tensor as numbers; with `sparse_*` as compressed rows, whose other cells are 0."""

    data: Many[float] | Many[int]
    dtype: Literal["float32", "int64"] = "float32"
    shape: Many[int] | None = None
    sparse_crow_indices: Many[int] | None = None
    sparse_col_indices: Many[int] | None = None


class JsonChunk(Message):
    """A piece of a prompt. Only text can be computed here; the rest is named in the refusal."""

    type: str = "encoded_text"
    tokens: Many[int] | None = None


class JsonInput(Message):
    chunks: Some[JsonChunk]


class JsonDatum(Message):
    model_input: JsonInput
    loss_fn_inputs: dict[str, JsonTensor] = {}


class BatchInput(Message):
    data: Some[JsonDatum]
    loss_fn: str = "cross_entropy"
    loss_fn_config: dict[str, float | str] | None = None


class Numbered(Message):
    """A request that waits for all of its model's requests with smaller numbers."""

    model_id: str
    seq_id: int


class ForwardBackward(Numbered):
    """The JSON form, of versions before 0.25; `forward` has its batch under another name."""

    forward_backward_input: BatchInput | None = None
    forward_input: BatchInput | None = None


class OptimizerParams(Message):
    """AdamW's numbers. Another `type` is another optimizer, which this server does not have."""

    type: str = "adamw"
    learning_rate: float = 1e-4
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-12
    weight_decay: float = 0.0
    grad_clip_norm: float = 0.0


class OptimStep(Numbered):
    adam_params: OptimizerParams | None = None
    optimizer_params: OptimizerParams | None = None


class SaveWeights(Numbered):
    path: str
    ttl_seconds: int | None = None
    overwrite: bool = False
    user_metadata: dict[str, Any] | None = None


class SaveWeightsForSampler(Numbered):
    """A checkpoint with a name, or without `path` a sampling session that nobody can name."""

    path: str | None = None
    sampling_session_seq_id: Ordinal | None = None
    kind: str = "snapshot"
    ttl_seconds: int | None = None
    user_metadata: dict[str, Any] | None = None


class SaveWeightsExternal(Numbered):
    path: str
    ttl_seconds: int | None = None
    age_encryption_recipients: Some[str] | None = None


class LoadWeights(Message):
    """Into a model by `model_id` and `seq_id`, or as a new model by `session_id` and `model_seq_id`."""

    path: str
    optimizer: bool = False
    model_id: str | None = None
    seq_id: int | None = None
    session_id: str | None = None
    model_seq_id: Ordinal | None = None
    base_model: str | None = None
    user_metadata: dict[str, Any] | None = None
    optimizer_config: OptimizerConfig | None = None
    weights_access_token: str | None = None


class LoadIntoModel(Numbered):
    """The first of the two."""

    path: str
    optimizer: bool = False


class UnloadModel(Message):
    model_id: str


class Unloaded(Message):
    model_id: str
    request_id: str
    type: Literal["unload_model"] = "unload_model"
