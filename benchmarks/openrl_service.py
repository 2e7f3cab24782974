"""Speed of `openrl serve` through the tinker SDK, beside plain torch in the same run; prints one JSON object.

Run as `python -m benchmarks.openrl_service [threads]`. The model is the one that the peers were measured with; client
and server share this machine. Others may use it too: compare processor times, and ratios to plain torch.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tinker
import torch
from tinker import types

from benchmarks.openrl_compute import RANK, data, medians, plain_torch, prompts, write_base

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
NEW_TOKENS = 32
TARGETS = {
    "step.pipelined.ms": "< 90",
    "idle_worker.pipelined.ms": "< 10",
    "idle_worker.sequential.ms": "< 13",
    "32_requests_of_32.tokens_per_s": "> 1200",
    "save_and_get_sampling_client.ms": "< 30",
}


class Live:
    """A server that answers, and a client of it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        said = "".join(process.stdout.readline() for _ in range(3))
        url, key = re.findall(r"^export TINKER_\w+=(\S+)", said, re.MULTILINE)
        self.pid = process.pid
        self.service = tinker.ServiceClient(base_url=url, api_key=key)

    def cpu_s(self) -> float:
        """Processor time of the server so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


@contextmanager
def serving(folder: Path, *command: str) -> Iterator[Live]:
    """A server in a process of its own, until the end of the block."""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    with open(folder / f"{command[0]}.log", "w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", *command], stdout=subprocess.PIPE, stderr=log, text=True, env=environment
        )
    try:
        live = Live(process)
        yield live
        live.service.close("success")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def timed(live: Live, what: Callable[[], object], times: int, warm: int = 5) -> dict[str, float]:
    """The median duration of a call, and the mean processor times of both sides, in milliseconds."""
    for _ in range(warm):
        what()
    walls, server, client = [], live.cpu_s(), time.process_time()
    for _ in range(times):
        began = time.perf_counter()
        what()
        walls.append((time.perf_counter() - began) * 1e3)
    return {
        "ms": round(statistics.median(walls), 2),
        "best_tenth_ms": round(sorted(walls)[len(walls) // 10], 2),
        "server_cpu_ms": round((live.cpu_s() - server) * 1e3 / times, 2),
        "client_cpu_ms": round((time.process_time() - client) * 1e3 / times, 2),
    }


def batch() -> list[types.Datum]:
    return [
        types.Datum(
            model_input=types.ModelInput.from_ints(one.tokens.tolist()),
            loss_fn_inputs={"target_tokens": types.TensorData.from_numpy(one.inputs["target_tokens"])},
        )
        for one in data()
    ]


def steps(live: Live, training: Any, times: int) -> dict[str, dict[str, float]]:
    """A forward_backward and an optim_step: both sent before either is waited for, and one after the other."""
    given, adam = batch(), types.AdamParams(learning_rate=1e-4)

    def pipelined() -> None:
        trained, stepped = training.forward_backward(given, "cross_entropy"), training.optim_step(adam)
        trained.result()
        stepped.result()

    def sequential() -> None:
        training.forward_backward(given, "cross_entropy").result()
        training.optim_step(adam).result()

    return {"pipelined": timed(live, pipelined, times), "sequential": timed(live, sequential, times)}


def sampling(live: Live, training: Any) -> dict[str, dict[str, float]]:
    """Saving for a sampler, and many requests at once of one that was saved."""
    sampler = training.save_weights_and_get_sampling_client().result()
    inputs = [types.ModelInput.from_ints(prompt.tolist()) for prompt in prompts()]
    params = [types.SamplingParams(max_tokens=NEW_TOKENS, seed=seed, stop=[]) for seed in range(len(inputs))]

    def at_once() -> None:
        pairs = zip(inputs, params, strict=True)
        futures = [sampler.sample(prompt, num_samples=1, sampling_params=one) for prompt, one in pairs]
        for future in futures:
            assert len(future.result().sequences[0].tokens) == NEW_TOKENS

    many = timed(live, at_once, 10, warm=3)
    many["tokens_per_s"] = round(len(inputs) * NEW_TOKENS * 1e3 / many["ms"])
    saved = timed(live, lambda: training.save_weights_and_get_sampling_client().result(), 20)
    return {"32_requests_of_32": many, "save_and_get_sampling_client": saved}


def plain(folder: Path, threads: int) -> dict[str, float]:
    """The same step by hand, without a service."""
    torch.set_num_threads(threads)
    wall, cpu = medians(plain_torch(folder))
    return {"ms": round(wall, 2), "cpu_ms": round(cpu, 2)}


def measure(folder: Path, threads: int) -> dict[str, Any]:
    write_base(folder / "base")
    config = folder / "openrl.toml"
    config.write_text(f'threads = {threads}\n[models.bench]\npath = "{folder / "base"}"\n')
    found: dict[str, Any] = {"threads": threads, "load_before": os.getloadavg()[0]}
    with serving(folder, "benchmarks.openrl_idle_server", str(folder / "idle")) as live:
        found["idle_worker"] = steps(live, live.service.create_lora_training_client("bench", RANK).result(), 200)
    serve = ("openrl.cli", "serve", "--port", "0", "--config", str(config), "--data", str(folder / "data"))
    with serving(folder, *serve) as live:
        training = live.service.create_lora_training_client("bench", RANK).result()
        found["step"] = steps(live, training, 30)
        found.update(sampling(live, training))
    found["plain_torch_step"] = plain(folder / "base", threads)
    found["step_over_plain_torch"] = round(found["step"]["pipelined"]["ms"] / found["plain_torch_step"]["ms"], 2)
    return {**found, "load_after": os.getloadavg()[0], "targets": TARGETS}


def main() -> None:
    folder = Path(tempfile.mkdtemp())
    os.environ["TINKER_TELEMETRY"] = "0"
    try:
        print(json.dumps(measure(folder, int(sys.argv[1]) if len(sys.argv) > 1 else 2), indent=2))
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
