"""The region backend keeps the contract of backends; its jobs are torch modules in this process."""

from __future__ import annotations

import threading

import anyio
import pytest
import torch

from tsched.backends import Backend, Order, Presence, Sizes
from tsched.backends.arena import Arena
from tsched.backends.region import CpuCopier, RegionBackend, Regions
from tsched.backends.region.host import Slice
from tsched.errors import BackendError, DeviceMemoryFull, HostMemoryFull, Invalid, ProcessGone, StaleToken
from tsched.testing.backend_suite import check_backend

pytestmark = pytest.mark.anyio
SIZE = 1 << 16


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def order(op: int, job: str = "a", token: int = 1) -> Order:
    return Order(op, "g", "0", job, token)


class TensorJobs(RegionBackend):
    """Jobs whose state is a few tensors."""

    def __init__(self, capacity_bytes: int, host_bytes: int) -> None:
        self.arena = Arena(capacity_bytes)
        self.states: dict[tuple[str, str, str], list[torch.Tensor]] = {}
        super().__init__(arena=self.arena, host_bytes=host_bytes, checksums=True)

    def allocate(self, group: str, node: str, job: str, size_bytes: int) -> None:
        whole = torch.zeros(size_bytes // 2, dtype=torch.uint8)
        parts = [whole[: size_bytes // 4], whole, torch.zeros(size_bytes - size_bytes // 2, dtype=torch.uint8)]
        self.register(group, node, job, Regions().add("state", parts))
        self.states[group, node, job] = parts

    def work(self, group: str, node: str, job: str) -> None:
        for number, part in enumerate(self.states[group, node, job]):
            part.add_(number + 1)

    def contents(self, group: str, node: str, job: str) -> bytes:
        try:
            return b"".join(bytes(part.numpy()) for part in self.states[group, node, job])
        except RuntimeError as error:
            raise BackendError(str(error)) from error

    def kill(self, group: str, node: str, job: str) -> None:
        self.unregister(group, node, job)
        del self.states[group, node, job]


async def test_it_keeps_the_contract_of_backends() -> None:
    made: list[TensorJobs] = []

    def make() -> TensorJobs:
        made.append(TensorJobs(4 * SIZE, 3 * SIZE))
        return made[-1]

    await check_backend(make, size_bytes=SIZE, capacity_bytes=4 * SIZE, host_bytes=3 * SIZE)
    assert all(jobs.arena.peak_bytes <= 4 * SIZE for jobs in made)


async def test_it_is_a_backend_for_jobs_between_phases() -> None:
    assert isinstance(RegionBackend(), Backend)
    assert not RegionBackend().suspendable


async def test_a_job_that_has_registered_nothing_yet_has_nothing_to_move() -> None:
    """Its first turn may be over before it has any state."""
    backend = RegionBackend()
    backend.refill("g", "0", "a")
    assert backend.trim("g", "0", "a") == 0
    await backend.park(order(1))
    assert await backend.probe("g", "0", "a", deadline_us=0) == Presence()
    assert await backend.sizes("g", "0", "a") == Sizes(0)
    with pytest.raises(ProcessGone, match="job 'a' has no regions on g/0: register them first"):
        await backend.restore(order(2))


async def test_a_job_that_was_here_is_gone() -> None:
    backend = RegionBackend()
    backend.register("g", "0", "a", Regions().add("x", torch.zeros(10)))
    backend.unregister("g", "0", "a")
    with pytest.raises(ProcessGone, match="job 'a' has no regions on g/0"):
        await backend.park(order(1))
    assert await backend.probe("g", "0", "a", deadline_us=0) == Presence(alive=False)


async def test_a_job_is_registered_once_and_only_where_it_fits() -> None:
    backend = RegionBackend(arena=Arena(1000))
    with pytest.raises(DeviceMemoryFull, match="g/0/big: 1001 bytes do not fit"):
        backend.register("g", "0", "big", Regions().add("x", torch.zeros(1001, dtype=torch.uint8)))
    backend.register("g", "0", "a", Regions().add("x", torch.zeros(1000, dtype=torch.uint8)))
    with pytest.raises(BackendError, match="registered on g/0 already"):
        backend.register("g", "0", "a", Regions())
    assert await backend.probe("g", "0", "big", deadline_us=0) == Presence()


async def test_a_discarded_job_leaves_no_memory_and_its_tensors_refuse_to_be_read() -> None:
    arena, state = Arena(1000), torch.ones(100)
    backend = RegionBackend(arena=arena)
    backend.register("g", "0", "a", Regions().add("x", state))
    await backend.discard(order(1))
    assert (arena.used_bytes, state.untyped_storage().nbytes()) == (0, 0)
    with pytest.raises(RuntimeError):
        state.sum()
    backend.register("g", "0", "a", Regions().add("x", torch.ones(250)))
    await backend.park(order(2))
    assert await backend.probe("g", "0", "a", deadline_us=0) == Presence(0, 1000)


async def test_a_host_that_is_full_refuses_before_anything_moves() -> None:
    backend, state = RegionBackend(host_bytes=399), torch.ones(100)
    backend.register("g", "0", "a", Regions().add("x", state))
    with pytest.raises(HostMemoryFull, match="400 bytes would be parked beside 0"):
        await backend.park(order(1))
    assert torch.equal(state, torch.ones(100))
    with pytest.raises(Invalid, match="limit_bytes"):
        RegionBackend(host_bytes=0)


class SlowCopier(CpuCopier):
    """Copies in only when it is let through."""

    def __init__(self) -> None:
        self.began, self.open = threading.Event(), threading.Event()

    def copy_in(self, storage: torch.UntypedStorage, source: Slice) -> None:
        self.began.set()
        assert self.open.wait(20)
        super().copy_in(storage, source)


async def test_a_duplicate_restore_never_races_with_work() -> None:
    copier, state = SlowCopier(), torch.zeros(1000)
    backend = RegionBackend(copier_for=lambda device: copier)
    backend.register("g", "0", "a", Regions().add("x", state))
    await backend.park(order(1))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(backend.restore, order(2))
        tasks.start_soon(backend.restore, order(2))
        assert await anyio.to_thread.run_sync(copier.began.wait, 20)
        copier.open.set()
    for number in range(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(backend.restore, order(2))
            tasks.start_soon(backend.restore, order(3 + number))
            state.add_(1)
    assert torch.equal(state, torch.full((1000,), 20.0))


async def test_a_stale_restore_after_a_newer_park_changes_nothing() -> None:
    backend, state = RegionBackend(), torch.ones(10)
    backend.register("g", "0", "a", Regions().add("x", state))
    await backend.park(order(1, token=2))
    with pytest.raises(StaleToken):
        await backend.restore(order(2, token=1))
    assert await backend.probe("g", "0", "a", deadline_us=0) == Presence(0, 40)


async def test_an_export_in_the_midst_of_moves_is_never_torn() -> None:
    backend, state = RegionBackend(checksums=True), torch.arange(200_000)
    backend.register("g", "0", "a", Regions().add("x", state))
    torn: list[int] = []
    done = threading.Event()

    def export() -> None:
        while not done.is_set():
            copy = backend.export("g", "0", "a")["x"]
            torn.append(int((copy.numpy() != range(200_000)).sum()))

    thread = threading.Thread(target=export)
    thread.start()
    for number in range(20):
        await backend.park(order(2 * number))
        await backend.restore(order(2 * number + 1))
    done.set()
    await anyio.to_thread.run_sync(thread.join)
    assert torn
    assert not any(torn)


async def test_a_shared_base_stays_and_is_charged_once() -> None:
    arena, base = Arena(10_000), torch.nn.Linear(30, 30)
    backend = RegionBackend(arena=arena)
    adapters = {job: torch.ones(100) for job in "ab"}
    for job, adapter in adapters.items():
        backend.register("g", "0", job, Regions().add("adapter", [adapter, *base.parameters()]).share(base))
    assert arena.used_bytes == 3720 + 2 * 400
    assert await backend.sizes("g", "0", "a") == Sizes(400, 0, 3720)
    await backend.park(order(1))
    assert await backend.probe("g", "0", "a", deadline_us=0) == Presence(0, 400)
    assert base(torch.ones(1, 30)).shape == (1, 30)
    for job in "ab":
        backend.unregister("g", "0", job)
    assert arena.used_bytes == 0


async def test_a_storage_that_another_job_uses_too_stays_though_nobody_said_so() -> None:
    backend, common = RegionBackend(), torch.ones(100)
    for job in "ab":
        backend.register("g", "0", job, Regions().add("x", {"own": torch.ones(10), "common": common}))
    await backend.park(order(1))
    assert await backend.probe("g", "0", "a", deadline_us=0) == Presence(0, 40)
    assert float(common.sum()) == 100
    backend.unregister("g", "0", "b")
    await backend.park(order(2))
    assert await backend.probe("g", "0", "a", deadline_us=0) == Presence(0, 440)


async def test_a_base_that_is_loaded_after_the_job_has_registered_is_charged_at_the_end_of_its_turn() -> None:
    arena, base = Arena(10_000), [torch.ones(100)]
    backend = RegionBackend(arena=arena)
    backend.register("g", "0", "a", Regions().add("x", torch.ones(10)).share(lambda: list(base)))
    base.append(torch.ones(1000))
    assert backend.trim("g", "0", "a") == 40
    assert arena.used_bytes == 40 + 400 + 4000
    del base[1]
    backend.trim("g", "0", "a")
    assert arena.used_bytes == 40 + 400


async def test_a_job_that_is_refused_leaves_nothing_behind() -> None:
    backend, common = RegionBackend(arena=Arena(1000)), torch.ones(100)
    backend.register("g", "0", "a", Regions().add("x", common))
    with pytest.raises(DeviceMemoryFull):
        backend.register("g", "0", "b", Regions().add("x", [common, torch.ones(500)]))
    await backend.park(order(1))
    assert await backend.probe("g", "0", "a", deadline_us=0) == Presence(0, 400)
