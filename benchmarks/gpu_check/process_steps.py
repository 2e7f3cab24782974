"""A whole process, which knows nothing of it, parked by the driver and brought back; and what NVML says of one."""

from __future__ import annotations

import time
from itertools import count

import anyio

from benchmarks.gpu_check.child import Child
from benchmarks.gpu_check.outcome import Failed, Figures, Impossible
from benchmarks.gpu_check.region_steps import FALL
from benchmarks.gpu_check.scale import GIB, Scale
from benchmarks.gpu_check.site import Site
from tsched.backends import Order
from tsched.backends.nvml import MemoryWatch
from tsched.backends.process import ProcessBackend, find_driver
from tsched.model import SECOND_US

PLACE = ("gpu", "0", "job")
_SETTLE_US = 10 * SECOND_US
_LATE_US = SECOND_US // 2


def check_suspendable(site: Site, pid: int) -> None:
    """Raises `MissingDriver`, or `Impossible` where nobody says that the process has a context."""
    if site.nvml is None:
        return
    find_driver()
    if pid not in site.contexts():
        raise Impossible(
            f"process {pid} is on the device, and neither NVML nor its open files say so: in a container, share the "
            "host's process ids (--pid=host)"
        )


def park_process(site: Site, scale: Scale) -> Figures:
    """Checksums by the process itself, memory by NVML, times."""
    with Child(scale) as child:
        child.ask("build")
        check_suspendable(site, child.pid)
        return anyio.run(_there_and_back, site, scale, child)


async def _there_and_back(site: Site, scale: Scale, child: Child) -> Figures:
    read = site.reader(child.pid)
    backend = ProcessBackend(gpu_pids=site.contexts)
    backend.register(*PLACE, [child.pid])
    numbers = count(1)
    held: list[int] = []
    park_s: list[float] = []
    restore_s: list[float] = []
    parked = 0
    for _ in range(2):
        before, start = await _ask(child, "checksum"), read()
        begin = time.perf_counter()
        await backend.park(Order(next(numbers), *PLACE, token=1))
        presence = await backend.probe(*PLACE, deadline_us=_SETTLE_US)
        park_s.append(time.perf_counter() - begin)
        if presence.resident_bytes or not presence.alive:
            raise Failed(f"after the park: {presence}")
        fallen = start - read()
        if site.nvml is not None and fallen < FALL * scale.state_bytes:  # freezing, as on a CPU, frees none
            raise Failed(f"the process's model has {scale.state_bytes} bytes, and parking it freed {fallen}")
        held.append(start)
        parked = presence.parked_bytes
        begin = time.perf_counter()
        await backend.restore(Order(next(numbers), *PLACE, token=1))
        restore_s.append(time.perf_counter() - begin)
        if await _ask(child, "checksum") != before:
            raise Failed("the process's state differs from what was parked")
        await _ask(child, "step")
    return {
        "held_gib": held[0] / GIB,
        "parked_gib": parked / GIB,
        "figures_of": "the device" if read == site.held else "the process",
        "park_s": park_s[-1],
        "restore_s": restore_s[-1],
        "park_gib_per_s": held[-1] / GIB / park_s[-1],
        "restore_gib_per_s": held[-1] / GIB / restore_s[-1],
        "bits": "identical",
    }


def probe(site: Site, scale: Scale) -> Figures:
    """What a process holds is seen; a wait for memory that does not go ends at its deadline, else when it goes."""
    size = scale.state_bytes
    with Child(scale) as child:
        child.ask("hold", size_bytes=0)
        read = site.reader(child.pid)
        empty = read()
        child.ask("hold", size_bytes=size)
        full = read()
        if not size * FALL <= full - empty <= size * 1.5:
            raise Failed(f"a process took {size} bytes, and {full - empty} more are seen")
        watch = MemoryWatch(read)
        figures = anyio.run(_watch, watch, child, full - size // 2)
    return {"taken_gib": size / GIB, "seen_gib": (full - empty) / GIB, **figures, **_look(site)}


async def _watch(watch: MemoryWatch, child: Child, limit: int) -> Figures:
    begin = time.perf_counter()
    seen = await watch.at_most(limit, deadline_us=_LATE_US)
    waited_s = time.perf_counter() - begin
    if seen <= limit or waited_s < _LATE_US / SECOND_US:
        raise Failed(f"memory that is held was taken for free: {seen} bytes, after {waited_s:.2f} s")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_ask, child, "free")
        begin = time.perf_counter()
        seen = await watch.at_most(limit, deadline_us=_SETTLE_US)
        freed_s = time.perf_counter() - begin
    if seen > limit:
        raise Failed(f"memory that was freed is still seen: {seen} bytes")
    return {"deadline_s": _LATE_US / SECOND_US, "waited_s": waited_s, "freed_seen_after_s": freed_s}


def _look(site: Site) -> Figures:
    if site.nvml is None:
        return {}
    begin = time.perf_counter()
    processes = site.nvml.processes()
    return {
        "one_reading_ms": (time.perf_counter() - begin) * 1e3,
        "processes_listed": len(processes),
        "devices": site.nvml.count(),
    }


async def _ask(child: Child, deed: str) -> object:
    return await anyio.to_thread.run_sync(child.ask, deed)
