"""Messages about sampling. A `seq_id` counts the requests of one sampling session from 0, and may be very large."""

from __future__ import annotations

from typing import Literal

from openrl.wire.message import Many, Message, Ordinal
from openrl.wire.training import JsonInput, JsonTensor


class CreateSamplingSession(Message):
    """From a checkpoint for sampling, or from a base model."""

    session_id: str
    sampling_session_seq_id: Ordinal = 0
    base_model: str | None = None
    model_path: str | None = None


class SamplingSessionCreated(Message):
    sampling_session_id: str
    type: Literal["create_sampling_session"] = "create_sampling_session"


class Sampler(Message):
    sampler_id: str
    base_model: str
    model_path: str | None = None


class SamplingParams(Message):
    """`stop` None stops at the model's end of text, an empty list nowhere."""

    max_tokens: int | None = None
    seed: int | None = None
    stop: str | Many[int] | Many[str] | None = None
    temperature: float = 1.0
    top_k: int = -1
    top_p: float = 1.0


class Sample(Message):
    sampling_session_id: str
    seq_id: int = 0
    prompt: JsonInput
    num_samples: int = 1
    sampling_params: SamplingParams = SamplingParams()
    prompt_logprobs: bool | None = None
    topk_prompt_logprobs: int = 0
    topk_sample_logprobs: int = 0
    target_prompt_logprobs: JsonTensor | None = None
    prompt_alt_tokens_k: int = 0
    prompt_logprobs_last_n: int | None = None
    record_stability_info: bool | None = None


class JoinSamplingSession(Message):
    sampling_session_id: str


class SamplingSessionJoined(Message):
    """The client then counts its requests from 1,000,000,000 times this number."""

    client_counter: int
    type: Literal["join_sampling_session"] = "join_sampling_session"
