"""Speed of openrl's torch worker on one small model, beside plain torch in the same run; prints one JSON object.

Run as `python -m benchmarks.openrl_compute [threads]`. Others may use the machine: compare the ratios.
"""

from __future__ import annotations

import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as F
from transformers import AutoModelForCausalLM, Qwen3Config, Qwen3ForCausalLM

from openrl import tiny
from openrl.torch_worker import TorchWorker
from openrl.work import Datum, ForwardBackward, ModelSpec, OptimStep, Sample, SampleParams, SaveSampler

VOCABULARY, BATCH, LENGTH, RANK = 4096, 4, 64, 16


def medians(what: Callable[[], object], times: int = 15, warm: int = 3) -> tuple[float, float]:
    """The median duration of a call and of the processor time that it took, in milliseconds."""
    walls, cpus = [], []
    for _ in range(warm + times):
        wall, cpu = time.perf_counter(), time.process_time()
        what()
        walls.append((time.perf_counter() - wall) * 1e3)
        cpus.append((time.process_time() - cpu) * 1e3)
    return statistics.median(walls[warm:]), statistics.median(cpus[warm:])


def in_ms(name: str, measured: tuple[float, float]) -> dict[str, float]:
    return {f"{name}_ms": round(measured[0], 1), f"{name}_cpu_ms": round(measured[1], 1)}


def in_tokens(name: str, tokens: int, measured: tuple[float, float]) -> dict[str, float]:
    wall, cpu = measured
    return {f"{name}_tokens_per_s": round(tokens * 1e3 / wall), f"{name}_tokens_per_cpu_s": round(tokens * 1e3 / cpu)}


def write_base(folder: Path) -> None:
    """The model that the peers were measured with."""
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=2048,
        tie_word_embeddings=False,
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)
    tiny.tokenizer().save_pretrained(folder)


def data() -> list[Datum]:
    tokens = np.random.default_rng(0).integers(0, VOCABULARY, (BATCH, LENGTH + 1))
    return [Datum(row[:-1], {"target_tokens": row[1:]}) for row in tokens]


class _PlainLora(torch.nn.Module):
    def __init__(self, linear: torch.nn.Linear) -> None:
        super().__init__()
        self.linear = linear
        self.a = torch.nn.Parameter(torch.randn(RANK, linear.in_features) * 0.02)
        self.b = torch.nn.Parameter(torch.zeros(linear.out_features, RANK))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        adapted: torch.Tensor = self.linear(x) + F.linear(F.linear(x, self.a), self.b) * 2.0
        return adapted


def plain_torch(folder: Path) -> Callable[[], object]:
    """The same step as one would write it by hand: transformers, low-rank layers, autograd, torch's AdamW."""
    model = AutoModelForCausalLM.from_pretrained(folder).requires_grad_(False)
    for name, module in list(model.named_modules()):
        if isinstance(module, torch.nn.Linear):
            model.set_submodule(name, _PlainLora(module))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4, weight_decay=0.0)
    ids = torch.from_numpy(np.stack([datum.tokens for datum in data()]))
    targets = torch.from_numpy(np.stack([datum.inputs["target_tokens"] for datum in data()]))

    def step() -> None:
        logits = model(input_ids=ids, use_cache=False).logits
        F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum").backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()

    return step


def plain_generate(folder: Path) -> Callable[[], object]:
    """The same number of tokens by the library's own loop: one batch, no adapter, no stop, no log-probabilities."""
    model = AutoModelForCausalLM.from_pretrained(folder)
    return lambda: model.generate(
        torch.from_numpy(prompts()), do_sample=True, top_k=0, min_new_tokens=32, max_new_tokens=32, pad_token_id=0
    )


def prompts() -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    return np.random.default_rng(1).integers(0, VOCABULARY, (32, 24))


def measure(folder: Path, threads: int) -> dict[str, float]:
    write_base(folder / "base")
    worker = TorchWorker(folder, {"bench": str(folder / "base")}, threads=threads)
    worker.create("m", ModelSpec("bench", rank=RANK))
    work, step = ForwardBackward(data(), "cross_entropy"), OptimStep()
    trained = medians(lambda: (worker.run("m", work), worker.run("m", step)))
    plain = medians(plain_torch(folder / "base"))
    return {
        "threads": threads,
        **in_ms("step", trained),
        **in_ms("plain_torch_step", plain),
        "step_over_plain_torch_cpu": round(trained[1] / plain[1], 2),
        **sampling(worker, folder),
        **in_tokens("transformers_generate_batch_of_32", 1024, medians(plain_generate(folder / "base"), 5)),
    }


def sampling(worker: TorchWorker, folder: Path) -> dict[str, float]:
    worker.run("m", SaveSampler(str(folder / "first")))
    params = [SampleParams(32, seed, stop_tokens=()) for seed in range(32)]
    many = [
        Sample("bench", str(folder / "first"), prompt, 1, one) for prompt, one in zip(prompts(), params, strict=True)
    ]
    grouped = [Sample("bench", str(folder / "first"), prompts()[0], 32, params[0])]
    fresh = (str(folder / f"snapshot{number}") for number in range(1000))

    def save_and_use() -> None:
        snapshot = next(fresh)
        worker.run("m", SaveSampler(snapshot))
        worker.sample([Sample("bench", snapshot, prompts()[0], 1, SampleParams(1, 0))])

    return {
        **in_tokens("32_requests_of_32", 1024, medians(lambda: worker.sample(many), 5)),
        **in_tokens("num_samples_32", 1024, medians(lambda: worker.sample(grouped), 5)),
        **in_tokens("one_sequence", 32, medians(lambda: worker.sample(many[:1]), 5)),
        **in_ms("save_sampler_and_first_token", medians(save_and_use)),
    }


def main() -> None:
    folder = Path(tempfile.mkdtemp())
    try:
        print(json.dumps(measure(folder, int(sys.argv[1]) if len(sys.argv) > 1 else 2), indent=2))
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
