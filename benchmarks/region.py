"""Regions on a CPU: bandwidth against a plain copy, memory after many switches, and turns that move nothing.

    python -m benchmarks.region [bandwidth | memory | turn | packing]

Each runs in a process of its own, so that its memory is its own, with one torch thread. How LoRA jobs are packed is
told in `benchmarks.packing`.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks.packing import ENVIRONMENT, packing
from tsched.backends.arena import Arena
from tsched.backends.region import HostPool, RegionBackend, Regions, RegionStore
from tsched.backends.region.copiers import copy

MIB = 1 << 20
SHAPES_OF_TURNS = ((10, 256), (50, 512), (100, 1000))  # layers, width


def bandwidth(size_bytes: int = 1 << 30, tensors: int = 16, rounds: int = 7) -> dict[str, object]:
    """Park and restore against one copy of the same bytes into newly allocated memory, in turn, medians of rounds."""
    state = [torch.full((size_bytes // tensors,), number, dtype=torch.uint8) for number in range(tensors)]
    store = RegionStore(Regions().add("state", state))
    seconds: dict[str, list[float]] = {"plain_copy": [], "park": [], "restore": []}
    first_park = 0.0
    for number in range(rounds + 1):
        times = {"plain_copy": _seconds_of_plain_copy(state), "park": _timed(store.park)}
        times["restore"] = _timed(store.restore)
        if number == 0:  # its host buffer is new
            first_park = times["plain_copy"] / times["park"]
            continue
        for name, value in times.items():
            seconds[name].append(value)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    return {
        "gib_per_s": {name: size_bytes / (1 << 30) / value for name, value in medians.items()},
        "park_over_plain_copy": medians["plain_copy"] / medians["park"],
        "restore_over_plain_copy": medians["plain_copy"] / medians["restore"],
        "first_park_over_plain_copy": first_park,
        "target": ">= 0.8 both",
    }


def memory(switches: int = 200, size_bytes: int = 16 * MIB) -> dict[str, object]:
    """What the process holds after so many switches between two jobs that train, against after two of them."""
    pool = HostPool()
    jobs = [_Job(size_bytes, pool) for _ in range(2)]
    jobs[1].store.park()
    held = {}
    for number in range(1, switches + 1):
        leaving, coming = (jobs[0], jobs[1]) if number % 2 else (jobs[1], jobs[0])
        leaving.store.trim()
        leaving.store.park()
        coming.store.restore()
        coming.step()
        held[number] = _held_bytes()
    return {
        "after_2_mib": held[2] / MIB,
        f"after_{switches}_mib": held[switches] / MIB,
        "most_mib": max(held.values()) / MIB,
        "ratio": held[switches] / held[2],
        "target": "within 0.02 of 1",
    }


def turn(turns: int = 200) -> dict[str, object]:
    """What a turn costs the job's own thread when nothing has to move: what was dropped comes back, then it is trimmed.

    Processor time: of transformers in AdamW with as many tensors, gradients included, and as many million parameters.
    """
    return {f"{layers * 10}_tensors": _cost_of_turn(layers, width, turns) for layers, width in SHAPES_OF_TURNS}


def _cost_of_turn(layers: int, width: int, turns: int) -> dict[str, float]:
    model = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(layers)))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, width)).sum().backward()
    optimizer.step()
    backend = RegionBackend(arena=Arena(1 << 40))
    backend.register("g", "0", "job", Regions().add("model", model).add("optimizer", optimizer))
    milliseconds = []
    for _ in range(turns):
        begin = time.thread_time()
        backend.refill("g", "0", "job")
        backend.trim("g", "0", "job")
        milliseconds.append((time.thread_time() - begin) * 1e3)
    return {
        "million_parameters": sum(parameter.numel() for parameter in model.parameters()) / 1e6,
        "median_ms": statistics.median(milliseconds),
        "most_ms": max(milliseconds),
    }


class _Job:
    """A linear layer that trains: weights, moments, and gradients that come and go."""

    def __init__(self, size_bytes: int, pool: HostPool) -> None:
        self.layer = torch.nn.Linear(1024, size_bytes // 4 // 1024 // 4, bias=False)
        self.optimizer = torch.optim.AdamW(self.layer.parameters())
        self.step()
        self.store = RegionStore(Regions().add("layer", self.layer).add("optimizer", self.optimizer), pool=pool)

    def step(self) -> None:
        self.layer(torch.ones(2, 1024)).square().mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def _seconds_of_plain_copy(state: list[torch.Tensor]) -> float:
    begin = time.perf_counter()
    copies = [torch.empty_like(tensor) for tensor in state]
    for tensor, copied in zip(state, copies, strict=True):
        copy(copied.data_ptr(), tensor.data_ptr(), tensor.nbytes)
    return time.perf_counter() - begin


def _timed(move: Callable[[], object]) -> float:
    begin = time.perf_counter()
    move()
    return time.perf_counter() - begin


def _held_bytes() -> int:
    """Resident memory, private and shared, of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


PARTS: dict[str, Callable[..., dict[str, object]]] = {
    "bandwidth": bandwidth,
    "memory": memory,
    "turn": turn,
    "packing": packing,
}


def run(part: str, **options: int) -> dict[str, object]:
    """One part, in a process of its own."""
    environment = os.environ | ENVIRONMENT if part == "packing" else None
    command = [sys.executable, "-m", "benchmarks.region", part, json.dumps(options)]
    seen: dict[str, object] = json.loads(
        subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout
    )
    return seen


def main() -> None:
    torch.set_num_threads(1)
    wanted = sys.argv[1:]
    if wanted:
        options = json.loads(wanted[1]) if len(wanted) > 1 else {}
        print(json.dumps(PARTS[wanted[0]](**options), indent=2))
    else:
        print(json.dumps({part: run(part) for part in PARTS}, indent=2))


if __name__ == "__main__":
    main()
