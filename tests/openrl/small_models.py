"""Base models that train in milliseconds, and workers and batches for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

from openrl import tiny
from openrl.torch_worker import TorchWorker
from openrl.work import Datum, ForwardBackward, ForwardBackwardResult, ModelSpec, OptimStep, Sample, SampleParams

VOCABULARY, CONTEXT = 96, 1024
ARCHITECTURES = {
    "qwen3": (Qwen3Config, Qwen3ForCausalLM),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
    "llama": (LlamaConfig, LlamaForCausalLM),
}


def write_base(folder: Path, architecture: str = "qwen3", seed: int = 0, **changes: Any) -> Path:
    """Two layers of width 32, with weights large enough that what it says is not all alike."""
    config_class, model_class = ARCHITECTURES[architecture]
    settings = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": CONTEXT,
        "tie_word_embeddings": False,
        "initializer_range": 0.3,
        "eos_token_id": 1,
        **changes,
    }
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model_class(config_class(**settings)).save_pretrained(folder)
    tiny.tokenizer().save_pretrained(folder)
    return folder


def worker(folder: Path, **options: Any) -> TorchWorker:
    """A worker that serves one small base, called `small`."""
    if not (folder / "small").exists():
        write_base(folder / "small")
    return TorchWorker(folder, {"small": str(folder / "small")}, threads=1, **options)


SPEC = ModelSpec("small", rank=4, seed=7)


def data(seed: int, lengths: tuple[int, ...] = (9, 5, 14)) -> list[Datum]:
    """Random tokens, each predicting the next."""
    draw = np.random.default_rng(seed)
    rows = [draw.integers(0, VOCABULARY, length + 1) for length in lengths]
    return [Datum(row[:-1], {"target_tokens": row[1:]}) for row in rows]


def train(at: TorchWorker, model_id: str, seeds: range, learning_rate: float = 1e-2) -> list[ForwardBackwardResult]:
    """One step a seed."""
    results = []
    for seed in seeds:
        results.append(forward_backward(at, model_id, seed))
        at.run(model_id, OptimStep(learning_rate=learning_rate))
    return results


def forward_backward(at: TorchWorker, model_id: str, seed: int, forward_only: bool = False) -> ForwardBackwardResult:
    result = at.run(model_id, ForwardBackward(data(seed), "cross_entropy", forward_only=forward_only))
    assert isinstance(result, ForwardBackwardResult)
    return result


def state(at: TorchWorker, model_id: str, folder: Path) -> dict[str, bytes]:
    """All that a model is, to compare to the bit."""
    at.save_durable(model_id, str(folder))
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def logprobs(result: ForwardBackwardResult) -> list[bytes]:
    return [each.tobytes() for each in result.logprobs]


def request(seed: int, weights: str = "", **changes: Any) -> Sample:
    """A request whose prompt and parameters follow from a seed; `params` may be given as a dict."""
    draw = np.random.default_rng(seed)
    prompt = draw.integers(2, VOCABULARY, int(draw.integers(1, 60)))
    params = {"max_tokens": int(draw.integers(1, 40)), "seed": seed, "stop_tokens": (), **changes.pop("params", {})}
    settings = {"prompt": prompt, "num_samples": 1, "params": SampleParams(**params), **changes}
    return Sample(base_model="small", weights=weights, **settings)
