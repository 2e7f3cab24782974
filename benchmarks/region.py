"""Regions on a CPU: bandwidth against a plain copy, memory after many switches, and LoRA jobs in one small arena.

    python -m benchmarks.region [bandwidth | memory | packing]

Each runs in a process of its own, so that its memory is its own, with one torch thread. In the packing every job is an
adapter with its AdamW state; the frozen base is there once. The arena enforces its capacity as an account; that it is
kept to is also seen from outside: the "device" is the process's anonymous memory, while host copies lie in shared
mappings, which Linux counts apart.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import anyio
import torch

from tsched import Group, Job, Scheduler
from tsched.backends.arena import Arena
from tsched.backends.region import CpuCopier, HostPool, RegionBackend, Regions, RegionStore
from tsched.backends.region.copiers import copy
from tsched.errors import DeviceMemoryFull

MIB = 1 << 20


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


class LoraJob(torch.nn.Module):
    """Low-rank adapters of the base's layers, and their optimizer; it learns to answer with a direction of its own."""

    def __init__(self, base: list[torch.nn.Linear], rank: int, seed: int) -> None:
        super().__init__()
        random = torch.Generator().manual_seed(seed)
        self.base = tuple(base)
        width = base[0].in_features
        self.inwards = torch.nn.ParameterList(torch.randn(rank, width, generator=random) / width for _ in base)
        self.outwards = torch.nn.ParameterList(torch.zeros(width, rank) for _ in base)
        self.optimizer = torch.optim.AdamW(self.parameters(), lr=0.003)
        self.inputs = torch.randn(4, width, generator=random)
        self.goal = torch.randn(4, width, generator=random)
        self.losses: list[float] = []

    def regions(self) -> Regions:
        regions = Regions().add("adapter", lambda: list(self.parameters())).add("optimizer", self.optimizer)
        return regions.share(lambda: [layer.weight for layer in self.base])

    def step(self) -> None:
        hidden = self.inputs
        for layer, inward, outward in zip(self.base, self.inwards, self.outwards, strict=True):
            hidden = torch.tanh(layer(hidden) + hidden @ inward.t() @ outward.t())
        loss = (hidden - self.goal).square().mean()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.losses.append(float(loss.detach()))


class AnonymousMemory:
    """Samples how far this process's anonymous memory has grown."""

    def __init__(self, every_s: float = 0.001) -> None:
        self._start, self.most = self._now(), 0
        self._every_s, self._done = every_s, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> AnonymousMemory:
        self._thread.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(self._every_s):
            self.most = max(self.most, self.grown())

    def grown(self) -> int:
        return self._now() - self._start

    @staticmethod
    def _now() -> int:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) << 10
        raise RuntimeError("this system does not say how much anonymous memory a process has")


class Packing:
    """One base, one arena with room for `at_once` jobs, one backend."""

    def __init__(self, at_once: int, width: int, layers: int, rank: int) -> None:
        self.base = [torch.nn.Linear(width, width, bias=False).requires_grad_(False) for _ in range(layers)]
        self.rank = rank
        self.adapter_bytes = 2 * layers * width * rank * 4
        state_bytes = 3 * self.adapter_bytes + 1024 * layers  # parameters and two moments, and the counts of steps
        self.turn_bytes = 5 * self.adapter_bytes  # gradients, and what a step computes with: measured, 4 and a little
        self.capacity = layers * width * width * 4 + at_once * state_bytes + self.turn_bytes
        self.arena = Arena(self.capacity)
        self.backend = RegionBackend(arena=self.arena)
        self.jobs: dict[str, LoraJob] = {}
        self.stores: list[RegionStore] = []
        self.switches_ms: list[float] = []
        self.state_bytes = 0
        self._yielded = 0.0

    def fit_at_once(self) -> int:
        """How many jobs stay on the device beside what one needs during its turn, until the next is refused."""
        self.arena.charge("turn", self.turn_bytes)
        kept: list[LoraJob] = []
        try:
            while True:
                job = self._make(len(kept))
                store = self.backend.register("g", "0", f"kept-{len(kept)}", job.regions())
                kept.append(job)
                self.state_bytes = store.sizes.save_bytes
        except DeviceMemoryFull:
            for number in range(len(kept)):
                self.backend.unregister("g", "0", f"kept-{number}")
        self.arena.refund("turn", self.turn_bytes)
        return len(kept)

    async def take_turns(self, jobs: int, turns: int, steps: int) -> None:
        group = Group("g", capacity_bytes=self.capacity - self.base_bytes)
        async with (
            Scheduler([group], policy="fifo", backend=self.backend) as scheduler,
            anyio.create_task_group() as tasks,
        ):
            for number in range(jobs):
                name = f"lora-{number}"
                sizes = {"g": self.state_bytes}, {"g": self.turn_bytes}
                await scheduler.add_job(Job(name, state_bytes=sizes[0], turn_bytes=sizes[1]))
                tasks.start_soon(self._run, scheduler, name, number, turns, steps)

    def park_all(self) -> None:
        for store in self.stores:
            store.park()

    @property
    def base_bytes(self) -> int:
        return sum(layer.weight.nbytes for layer in self.base)

    async def _run(self, scheduler: Scheduler, name: str, number: int, turns: int, steps: int) -> None:
        for turn in range(turns):
            lease = await scheduler.acquire(name, "g")
            if lease.restored:
                self.switches_ms.append((time.perf_counter() - self._yielded) * 1e3)
            if turn == 0:
                self.jobs[name] = self._make(number)
                self.stores.append(self.backend.register("g", "0", name, self.jobs[name].regions()))
            for _ in range(steps):
                self.jobs[name].step()
            self.backend.trim("g", "0", name)
            self._yielded = time.perf_counter()
            await scheduler.release(lease)

    def _make(self, number: int) -> LoraJob:
        job = LoraJob(self.base, self.rank, number)
        job.step()
        return job


def packing(
    jobs: int = 40,
    at_once: int = 4,
    turns: int = 3,
    steps: int = 2,
    *,
    width: int = 1024,
    layers: int = 4,
    rank: int = 96,
) -> dict[str, object]:
    """Fits at once against takes turns, through the live scheduler; every job must learn, the arena must hold."""
    LoraJob([torch.nn.Linear(width, width)], 1, 0).step()  # what torch allocates once, for whatever job
    memory = AnonymousMemory()
    bench = Packing(at_once, width, layers, rank)
    fit = bench.fit_at_once()
    CpuCopier().release()  # the job that did not fit was there, outside the account
    with memory:
        anyio.run(bench.take_turns, jobs, turns, steps)
    bench.park_all()
    apart = memory.grown() - bench.base_bytes  # what the process itself needs for so many jobs
    learned = [job for job in bench.jobs.values() if job.losses[-1] < job.losses[0]]
    return {
        "fit_at_once": fit,
        "take_turns": jobs,
        "ratio": jobs / fit,
        "target": ">= 8",
        "jobs_that_progress": len(learned),
        "state_mib_each": bench.state_bytes / MIB,
        "arena_mib": bench.capacity / MIB,
        "arena_peak_mib": bench.arena.peak_bytes / MIB,
        "device_memory_peak_seen_by_the_system_mib": (memory.most - apart) / MIB,
        "process_memory_beside_it_mib": apart / MIB,
        "parked_mib": bench.backend.pool.used_bytes / MIB,
        "switches": len(bench.switches_ms),
        "switch_median_ms": statistics.median(bench.switches_ms),
        "switch_mean_ms": statistics.fmean(bench.switches_ms),
    }


PARTS: dict[str, Callable[..., dict[str, object]]] = {"bandwidth": bandwidth, "memory": memory, "packing": packing}


def run(part: str, **options: int) -> dict[str, object]:
    """One part, in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.region", part, json.dumps(options)]
    seen: dict[str, object] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
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
