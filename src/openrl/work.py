"""The work that a training client asks for, and what comes of it: plain values without behaviour.

Arrays are numpy's: token ids int64 of shape (n,), log-probabilities float32. `folder` is absolute; who carries the work
out fills it atomically. What goes over the network is `openrl.wire`'s.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

Array = NDArray[Any]
Tokens = NDArray[np.int64]
Logprobs = NDArray[np.float32]


class ModelSpec(Struct, frozen=True):
    """What a model is made of: a base, and an adapter of `rank` on it, or with None all of its parameters.

    The adapter's update is scaled by `alpha / rank`; `seed` initialises it. The `train_*` say which layers it covers.
    """

    base_model: str
    rank: int | None = 32
    seed: int = 0
    alpha: float = 32.0
    train_attn: bool = True
    train_mlp: bool = True
    train_unembed: bool = True


class Datum(Struct, frozen=True):
    """One sequence: its input tokens, and by name what the loss takes besides, dense, of the same length."""

    tokens: Tokens
    inputs: dict[str, Array]


class ForwardBackward(Struct, frozen=True):
    """Run the loss over a batch; gradients add to those of earlier calls, unless `forward_only`."""

    data: list[Datum]
    loss: str
    config: dict[str, float | str] = field(default_factory=dict)
    forward_only: bool = False


class OptimStep(Struct, frozen=True):
    """One AdamW step with the gradients so far, which are then cleared. `grad_clip_norm` 0 clips nothing."""

    learning_rate: float = 1e-4
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-12
    weight_decay: float = 0.0
    grad_clip_norm: float = 0.0


class SaveState(Struct, frozen=True):
    """Write weights and optimizer, to train on from them."""

    folder: str


class SaveSampler(Struct, frozen=True):
    """Write the weights, to sample from them; never written again."""

    folder: str


class SaveExternal(Struct, frozen=True):
    """Write the weights in the form that others read."""

    folder: str


class LoadState(Struct, frozen=True):
    """Take over the weights of a checkpoint, and its optimizer where asked for."""

    folder: str
    optimizer: bool = False


Work = ForwardBackward | OptimStep | SaveState | SaveSampler | SaveExternal | LoadState


class SampleParams(Struct, frozen=True):
    """How tokens are drawn: `max_tokens` None goes on to the end of the context.

    `stop_tokens` None stops at the model's end of text, an empty tuple nowhere.
    """

    max_tokens: int | None
    seed: int
    temperature: float = 1.0
    top_k: int = -1
    top_p: float = 1.0
    stop_strings: tuple[str, ...] = ()
    stop_tokens: tuple[int, ...] | None = None


class Sample(Struct, frozen=True):
    """Draw `num_samples` continuations of a prompt from a snapshot's weights (its folder), or with "" from the base."""

    base_model: str
    weights: str
    prompt: Tokens
    num_samples: int
    params: SampleParams
    prompt_logprobs: bool = False
    topk_prompt_logprobs: int = 0
    topk_sample_logprobs: int = 0
    prompt_logprobs_last_n: int | None = None
    target_prompt_logprobs: Tokens | None = None
    prompt_alt_tokens_k: int = 0


class ForwardBackwardResult(Struct, frozen=True):
    """The log-probability of every target token, one array a datum; metrics are named `what:reduction`."""

    logprobs: list[Logprobs]
    metrics: dict[str, float]


class OptimResult(Struct, frozen=True):
    metrics: dict[str, float]


class SaveResult(Struct, frozen=True):
    size_bytes: int


class TopK(Struct, frozen=True):
    """The k likeliest tokens at each of n positions: ids int32 and log-probabilities float32, both of shape (n, k)."""

    token_ids: NDArray[np.int32]
    logprobs: Logprobs


class SampledSequence(Struct, frozen=True):
    """One continuation, with the token that stopped it; log-probabilities are of temperature 1."""

    tokens: NDArray[np.int32]
    logprobs: Logprobs
    stop_reason: Literal["stop", "length"]
    topk: TopK | None = None


class SampleResult(Struct, frozen=True):
    """Prompt log-probabilities have one entry a token, NaN where there is none, as at the first."""

    sequences: list[SampledSequence]
    prompt_logprobs: Logprobs | None = None
    topk_prompt_logprobs: TopK | None = None
    target_prompt_logprobs: Array | None = None
    prompt_alt_tokens: TopK | None = None


Result = ForwardBackwardResult | OptimResult | SaveResult
