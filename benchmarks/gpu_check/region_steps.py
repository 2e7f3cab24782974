"""Regions in one process: a real model there and back, without room, and small adapters many times."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from benchmarks.gpu_check.device_bytes import as_bytes, checksum, free_caches, synchronize
from benchmarks.gpu_check.outcome import Failed, Figures
from benchmarks.gpu_check.scale import GIB, MIB, Scale
from benchmarks.gpu_check.site import Site, anonymous_bytes
from benchmarks.gpu_check.trainee import Trainee
from tsched.backends.arena import Arena
from tsched.backends.region import HostPool, Regions, RegionStore
from tsched.errors import DeviceMemoryFull

FALL = 0.9  # of a state's bytes must be seen to go; the rest may be held by blocks that others lie in too
GROWTH = 0.02


def park_model(site: Site, scale: Scale) -> Figures:
    """Bits, bandwidth and memory of a model with its optimizer, against plain copies through pinned memory."""
    trainee = Trainee(scale)
    trainee.step()
    store = RegionStore(trainee.regions())
    plain = PlainCopy(trainee)
    plain.out()
    before, sum_before = site.held(), trainee.checksum()
    seconds: dict[str, list[float]] = {"park": [], "restore": [], "plain_out": [], "plain_in": []}
    parked = before
    for _ in range(scale.rounds + 1):  # the first one makes and pins the host buffer
        seconds["plain_out"].append(_timed(plain.out))
        seconds["plain_in"].append(_timed(plain.back))
        seconds["park"].append(_timed(store.park))
        parked = site.held()
        seconds["restore"].append(_timed(store.restore))
        if trainee.checksum() != sum_before or not plain.equal():
            raise Failed("what was restored differs from what was parked")
    size = store.sizes.save_bytes
    fallen, back = before - parked, site.held() - parked
    if fallen < FALL * size:
        raise Failed(f"{size} bytes were parked, and the memory in use fell by {fallen}")
    loss = trainee.step()
    medians = {name: statistics.median(values[1:]) for name, values in seconds.items()}
    return {
        "parameters": sum(each.numel() for each in trainee.model.parameters()),
        "state_gib": size / GIB,
        "bits": "identical",
        "memory_before_gib": before / GIB,
        "memory_parked_gib": parked / GIB,
        "fallen_over_state": fallen / size,
        "restored_over_state": back / size,
        "gib_per_s": {name: round(size / GIB / value, 2) for name, value in medians.items()},
        "park_over_plain_copy": medians["plain_out"] / medians["park"],
        "restore_over_plain_copy": medians["plain_in"] / medians["restore"],
        "first_park_s": seconds["park"][0],
        "park_s": medians["park"],
        "restore_s": medians["restore"],
        "loss_after": loss,
    }


class PlainCopy:
    """The same bytes in a host buffer, pinned beside a GPU: the yardstick of speed, and what must be equal."""

    def __init__(self, trainee: Trainee) -> None:
        self._device, self._tensors = trainee.device, [as_bytes(tensor) for tensor in trainee.tensors()]
        pinned = self._device.type == "cuda"
        self._copies = torch.empty(sum(each.numel() for each in self._tensors), dtype=torch.uint8, pin_memory=pinned)
        self._parts = torch.split(self._copies, [each.numel() for each in self._tensors])

    def out(self) -> None:
        for part, tensor in zip(self._parts, self._tensors, strict=True):
            part.copy_(tensor, non_blocking=True)
        synchronize(self._device)

    def back(self) -> None:
        for part, tensor in zip(self._parts, self._tensors, strict=True):
            tensor.copy_(part, non_blocking=True)
        synchronize(self._device)

    def equal(self) -> bool:
        pairs = zip(self._parts, self._tensors, strict=True)
        return all(torch.equal(part.to(self._device), tensor) for part, tensor in pairs)


def restore_without_room(site: Site, scale: Scale) -> Figures:
    """A restore that runs out of memory half-way leaves nothing behind, and works when there is room again."""
    capacity = 2 * scale.state_bytes
    arena = None if site.nvml is not None else Arena(capacity)
    trainee = Trainee(scale)
    trainee.step()
    store = RegionStore(trainee.regions(), arena=arena)
    before = trainee.checksum()
    store.park()
    parked = site.held()
    with _full(site, arena, leave_bytes=store.parked_bytes // 2):
        full = site.held()
        try:
            store.restore()
        except DeviceMemoryFull as error:
            reason = str(error).splitlines()[0]
        else:
            raise Failed("a state was restored into half of the memory that it needs")
        left = site.held() - full
        if store.resident_bytes or (site.nvml is not None and left > (1 - FALL) * store.parked_bytes):
            raise Failed(f"a restore that failed left {store.resident_bytes} bytes of the state, {left} on the device")
    store.restore()
    if trainee.checksum() != before:
        raise Failed("what was restored after a failure differs from what was parked")
    return {"refused_with": reason[:100], "left_mib": left / MIB, "parked_gib": parked / GIB, "bits": "identical"}


@contextmanager
def _full(site: Site, arena: Arena | None, leave_bytes: int) -> Iterator[None]:
    """Of the device, or of the arena that stands for it, so much is left."""
    if arena is not None:
        taken = arena.capacity_bytes - arena.used_bytes - leave_bytes
        arena.charge("filler", taken)
        yield
        arena.refund("filler", taken)
        return
    filler = torch.empty(site.memory().free_bytes - leave_bytes, dtype=torch.uint8, device=site.device)
    yield
    del filler
    free_caches(site.device)


class Adapter:
    """Low-rank matrices beside a frozen base, and their optimizer: many small tensors."""

    def __init__(self, base: list[torch.Tensor], rank: int, seed: int) -> None:
        device, width = base[0].device, base[0].shape[0]
        random = torch.Generator(device).manual_seed(seed)
        self.base = base
        self.inwards = [torch.randn(rank, width, generator=random, device=device) / width for _ in base]
        self.outwards = [torch.zeros(width, rank, device=device) for _ in base]
        for matrix in self.parameters():
            matrix.requires_grad_(True)
        self.optimizer = torch.optim.AdamW(self.parameters(), lr=0.003)
        self.inputs = torch.randn(4, width, generator=random, device=device)
        self.losses: list[float] = []
        self.step()

    def parameters(self) -> list[torch.Tensor]:
        return [*self.inwards, *self.outwards]

    def regions(self) -> Regions:
        regions = Regions().add("adapter", self.parameters).add("optimizer", self.optimizer)
        return regions.share(self.base)

    def state(self) -> list[torch.Tensor]:
        moments = [value for state in self.optimizer.state.values() for value in state.values()]
        return [*self.parameters(), *moments]

    def step(self) -> None:
        hidden = self.inputs
        for weight, inward, outward in zip(self.base, self.inwards, self.outwards, strict=True):
            hidden = torch.tanh(hidden @ weight + hidden @ inward.t() @ outward.t())
        loss = (hidden - 0.5).square().mean()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.losses.append(float(loss.detach()))


def switch_adapters(site: Site, scale: Scale) -> Figures:
    """Two adapters on one base by turns: bits at every switch, and the memory after all of them against after two."""
    width, rank = scale.hidden, scale.adapter_rank
    base = [torch.randn(width, width, device=site.device) / width**0.5 for _ in range(scale.layers)]
    pool = HostPool()
    adapters = [Adapter(base, rank, seed) for seed in range(2)]
    stores = [RegionStore(adapter.regions(), pool=pool) for adapter in adapters]
    size = stores[0].sizes.save_bytes
    sums = [checksum(adapter.state()) for adapter in adapters]
    both = site.held()
    stores[1].park()
    one = site.held()
    device: dict[int, int] = {}
    host: dict[int, int] = {}
    seconds: list[float] = []
    for number in range(1, scale.switches + 1):
        leaving, coming = (number - 1) % 2, number % 2
        sums[leaving] = checksum(adapters[leaving].state())
        seconds.append(_timed(stores[leaving].park) + _timed(stores[coming].restore))
        if checksum(adapters[coming].state()) != sums[coming]:
            raise Failed(f"switch {number}: the adapter that came back differs from the one that was parked")
        device[number], host[number] = site.held(), anonymous_bytes("self") + pool.mapped_bytes
        adapters[coming].step()
    return _growth(scale.switches, device, host) | {
        "state_mib_each": size / MIB,
        "given_back_over_state": (both - one) / size,
        "switch_median_ms": statistics.median(seconds) * 1e3,
        "losses": [[round(adapter.losses[0], 4), round(adapter.losses[-1], 4)] for adapter in adapters],
    }


def _growth(last: int, device: dict[int, int], host: dict[int, int]) -> Figures:
    figures: Figures = {}
    for name, held in (("device", device), ("host", host)):
        ratio = held[last] / held[2]
        figures |= {f"{name}_after_2_mib": held[2] / MIB, f"{name}_after_{last}_over_2": ratio}
        if ratio > 1 + GROWTH:
            raise Failed(f"after {last} switches {held[last]} bytes are in use on the {name}, after two {held[2]}")
    return figures


def _timed(move: Callable[[], object]) -> float:
    begin = time.perf_counter()
    move()
    return time.perf_counter() - begin
