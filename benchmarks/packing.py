"""How many LoRA jobs on one frozen base fit into one device, kept there or taking turns; the kernel is the judge.

    python -m benchmarks.region packing

The "device" is the private memory of a process of its own, and the kernel caps it (RLIMIT_DATA): at what interpreter
and base held before the first job, and room for so many states, one turn's working memory, and a stated allowance for
the process itself (what Python and torch keep of every job, parked or not, and stacks of threads), which is less than
one state. A tensor too many is refused by the kernel, whatever any account says. Three things make that honest: the C
library is told to give each tensor a mapping of its own, so that freed memory is gone; host copies lie in shared
mappings, which this limit does not count; and the cap is set once, and both ways are tried under it. First jobs are
kept until one is refused. Then many take turns through the live scheduler, with an arena that counts the same room.
"""

from __future__ import annotations

import gc
import resource
import statistics
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import torch

from tsched import Group, Job, Scheduler
from tsched.backends.arena import Arena
from tsched.backends.region import RegionBackend, Regions

MIB = 1 << 20
ENVIRONMENT = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_ARENA_MAX": "1"}  # a mapping for each tensor
ALLOWANCE_BYTES, ALLOWANCE_BYTES_A_JOB = 2 * MIB, MIB // 4
_STACK_BYTES = 256 << 10


class LoraJob(torch.nn.Module):
    """Low-rank adapters of the base's layers, and their optimizer; it learns to answer with a direction of its own."""

    def __init__(self, base: list[torch.nn.Linear], rank: int, seed: int) -> None:
        super().__init__()
        random = torch.Generator().manual_seed(seed)
        self.base = tuple(base)
        width = base[0].in_features
        self.inwards = torch.nn.ParameterList(torch.randn(rank, width, generator=random).div_(width) for _ in base)
        self.outwards = torch.nn.ParameterList(torch.zeros(width, rank) for _ in base)
        self.optimizer = torch.optim.AdamW(self.parameters(), lr=0.003)
        self.inputs = torch.randn(4, width, generator=random)
        self.goal = torch.randn(4, width, generator=random)
        self.losses: list[float] = []

    def regions(self) -> Regions:
        regions = Regions().add("adapter", lambda: self.parameters()).add("optimizer", self.optimizer)
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


@dataclass(frozen=True, slots=True)
class Shape:
    """One base of square layers, and adapters of one rank on every layer."""

    width: int = 1024
    layers: int = 4
    rank: int = 256

    @property
    def base_bytes(self) -> int:
        return 4 * self.layers * self.width**2

    @property
    def adapter_bytes(self) -> int:
        return 4 * self.layers * 2 * self.width * self.rank

    @property
    def state_bytes(self) -> int:
        """Adapter, two moments, and the optimizer's counters."""
        return 3 * self.adapter_bytes + 4 * 2 * self.layers

    @property
    def turn_bytes(self) -> int:
        """Gradients, and what a step computes with: three tensors of the size of one parameter, and activations."""
        return self.adapter_bytes + 3 * self.adapter_bytes // (2 * self.layers) + MIB

    def base(self) -> list[torch.nn.Linear]:
        layers = range(self.layers)
        return [torch.nn.Linear(self.width, self.width, bias=False).requires_grad_(False) for _ in layers]


def kept_until_refused(base: list[torch.nn.Linear], shape: Shape) -> tuple[int, str]:
    """How many jobs stay on the device and step, each beside all before it, and what the next one was told."""
    kept: list[LoraJob] = []
    while True:
        try:
            job = LoraJob(base, shape.rank, len(kept))
            job.step()
        except (RuntimeError, MemoryError) as error:
            return len(kept), str(error) or type(error).__name__
        kept.append(job)


@dataclass(slots=True)
class Turns:
    """Jobs that take turns on one device, each parked when the next one needs its room."""

    base: list[torch.nn.Linear]
    shape: Shape
    arena: Arena
    jobs: list[LoraJob] = field(default_factory=list)
    switches_ms: list[float] = field(default_factory=list)
    parked_bytes: int = 0
    _yielded: float = 0.0

    async def take(self, jobs: int, turns: int, steps: int) -> None:
        backend = RegionBackend(arena=self.arena)
        group = Group("g", capacity_bytes=self.arena.capacity_bytes - self.shape.base_bytes)
        async with (
            Scheduler([group], policy="fifo", backend=backend) as scheduler,
            anyio.create_task_group() as tasks,
        ):
            for number in range(jobs):
                sizes = {"g": self.shape.state_bytes}, {"g": self.shape.turn_bytes}
                await scheduler.add_job(Job(f"lora-{number}", state_bytes=sizes[0], turn_bytes=sizes[1]))
                tasks.start_soon(self._run, scheduler, backend, number, turns, steps)

    async def _run(self, scheduler: Scheduler, backend: RegionBackend, number: int, turns: int, steps: int) -> None:
        name = f"lora-{number}"
        job: LoraJob | None = None
        for _ in range(turns):
            lease = await scheduler.acquire(name, "g")
            if lease.restored:
                self.switches_ms.append((time.perf_counter() - self._yielded) * 1e3)
            if job is None:
                job = LoraJob(self.base, self.shape.rank, number)
                self.jobs.append(job)
                backend.register("g", "0", name, job.regions())
            for _ in range(steps):
                job.step()
            backend.trim("g", "0", name)
            self.parked_bytes = max(self.parked_bytes, backend.pool.used_bytes)
            self._yielded = time.perf_counter()
            await scheduler.release(lease)


def packing(
    jobs: int = 40,
    at_once: int = 4,
    turns: int = 3,
    steps: int = 2,
    *,
    width: int = 1024,
    layers: int = 4,
    rank: int = 256,
) -> dict[str, object]:
    """Kept against taking turns, under one cap of the kernel. Caps the calling process for good: give it its own."""
    shape = Shape(width, layers, rank)
    base = shape.base()
    _warm_up(base, shape)
    room = at_once * shape.state_bytes + shape.turn_bytes
    allowance = ALLOWANCE_BYTES + jobs * ALLOWANCE_BYTES_A_JOB
    _cap(room + allowance)
    fit, refusal = kept_until_refused(base, shape)
    gc.collect()
    bench = Turns(base, shape, Arena(shape.base_bytes + room))
    anyio.run(bench.take, jobs, turns, steps)
    return {
        "fit_at_once": fit,
        "take_turns": jobs,
        "ratio": jobs / fit,
        "target": ">= 8",
        "next_one_was_told": refusal,
        "jobs_that_progress": sum(job.losses[-1] < job.losses[0] for job in bench.jobs),
        "adapter_mib_each": shape.adapter_bytes / MIB,
        "state_mib_each": shape.state_bytes / MIB,
        "optimizer_mib_each": (shape.state_bytes - shape.adapter_bytes) / MIB,
        "room_for_jobs_mib": room / MIB,
        "allowance_mib": allowance / MIB,
        "arena_mib": bench.arena.capacity_bytes / MIB,
        "arena_peak_mib": bench.arena.peak_bytes / MIB,
        "cap_still_in_force": _is_refused(room + allowance),
        "most_parked_mib": bench.parked_bytes / MIB,
        "switches": len(bench.switches_ms),
        "switch_median_ms": statistics.median(bench.switches_ms),
        "switch_mean_ms": statistics.fmean(bench.switches_ms),
    }


def _warm_up(base: list[torch.nn.Linear], shape: Shape) -> None:
    """What interpreter, torch and scheduler allocate once, for whatever job."""
    threading.stack_size(_STACK_BYTES)
    room = shape.state_bytes + shape.turn_bytes
    anyio.run(Turns(base, shape, Arena(shape.base_bytes + room)).take, 2, 2, 1)
    gc.collect()


def _cap(more_bytes: int) -> None:
    """From now on the kernel gives this process so much private memory beside what it has, and no more."""
    limit = _private_bytes() + more_bytes
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def _private_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmData:"):
            return int(line.split()[1]) << 10
    raise RuntimeError("this system does not say how much private memory a process has")


def _is_refused(size_bytes: int) -> bool:
    with suppress(RuntimeError):
        torch.empty(size_bytes, dtype=torch.uint8)
        return False
    return True
