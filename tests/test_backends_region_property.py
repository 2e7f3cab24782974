"""Whatever a job holds and whatever befalls it, it has the bits of a twin that was never parked."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.test_backends_region_training import bits
from tests.test_backends_region_transfer import Broken, FailingCopier
from tsched.backends.arena import Arena
from tsched.backends.region import HostPool, Regions, RegionStore
from tsched.errors import DeviceMemoryFull, HostMemoryFull

FLOATS = (torch.float32, torch.float64, torch.bfloat16)
OTHERS = (torch.int8, torch.bool, torch.int64, torch.float16, torch.complex64)
OPTIMIZERS: dict[str, Callable[[list[torch.Tensor]], torch.optim.Optimizer]] = {
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.1),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "none": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
}
Shape = tuple[str, int, int, int]  # kind, which dtype, rows, columns
shapes = st.tuples(
    st.sampled_from(["parameter", "tied", "buffer", "view", "strided"]),
    st.integers(0, 100),
    st.integers(0, 4),
    st.integers(1, 5),
)
steps = st.sampled_from(["park", "park some", "restore", "restore some", "work", "trim", "forget gradients", "export"])


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


class Job:
    """Parameters, some of them tied, buffers, views of them, all of drawn kinds; work changes all of it."""

    def __init__(self, drawn: list[Shape], optimizer: str) -> None:
        self.parameters = [torch.nn.Parameter(torch.ones(3))]
        self.buffers: list[torch.Tensor] = [torch.zeros(2, 3)]
        for shape in drawn:
            self._add(*shape)
        distinct = list({id(parameter): parameter for parameter in self.parameters}.values())
        self.optimizer = OPTIMIZERS[optimizer](list(distinct))
        self.random = torch.Generator().manual_seed(9)

    def regions(self) -> Regions:
        regions = Regions().add("parameters", lambda: self.parameters).add("buffers", lambda: self.buffers)
        return regions.add("optimizer", self.optimizer).add("random", self.random)

    def work(self) -> None:
        loss = torch.zeros((), dtype=torch.float64)
        for parameter in self.parameters:
            noise = torch.rand(parameter.shape, generator=self.random)
            loss = loss + (parameter.to(torch.float64) * noise).sin().sum()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        for buffer in self.buffers:
            buffer.copy_(buffer.logical_not() if buffer.dtype == torch.bool else buffer + 1)

    def forget_gradients(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)

    def _add(self, kind: str, which: int, rows: int, columns: int) -> None:
        floats, others = FLOATS[which % len(FLOATS)], (FLOATS + OTHERS)[which % 8]
        match kind:
            case "parameter":
                self.parameters.append(torch.nn.Parameter(torch.ones(rows, columns, dtype=floats)))
            case "tied":
                self.parameters.append(self.parameters[which % len(self.parameters)])
            case "buffer":
                self.buffers.append(torch.ones(rows, columns, dtype=others))
            case "view":
                base = self.buffers[which % len(self.buffers)]
                self.buffers.append(base[: base.shape[0] // 2].t())
            case "strided":
                self.buffers.append(torch.zeros(rows + 1, 2 * columns, dtype=others)[1:, ::2])


@given(
    st.lists(shapes, max_size=8),
    st.sampled_from(sorted(OPTIMIZERS)),
    st.lists(st.tuples(steps, st.none() | st.integers(0, 12)), max_size=14),
)
def test_any_sequence_of_moves_and_work_leaves_the_bits_of_an_undisturbed_twin(
    drawn: list[Shape], optimizer: str, sequence: list[tuple[str, int | None]]
) -> None:
    job, twin = Job(drawn, optimizer), Job(drawn, optimizer)
    arena, pool, copier = Arena(1 << 20), HostPool(1 << 20), FailingCopier()
    store = RegionStore(job.regions(), arena=arena, pool=pool, checksums=True, copier_for=lambda device: copier)
    reference = RegionStore(twin.regions())
    for step, good in sequence:
        if step in ("work", "forget gradients"):
            store.restore()
        copier.good = good
        before = store.parked_bytes, store.resident_bytes
        try:
            _take(step, job, store)
        except Broken:
            assert (store.parked_bytes, store.resident_bytes) == before or step == "trim"
        except (DeviceMemoryFull, HostMemoryFull):
            pytest.fail("there is room for everything")
        copier.good = None
        if step in ("work", "forget gradients"):
            _take(step, twin, reference)
        assert bits(store.export()) == bits(reference.export())
        assert pool.used_bytes == store.parked_bytes
        assert store.trim() == reference.trim()
        assert arena.used_bytes == store.resident_bytes
    store.restore()
    assert bits(store.export()) == bits(reference.export())


def _take(step: str, job: Job, store: RegionStore) -> None:
    match step:
        case "park":
            store.park()
        case "park some":
            store.park(["buffers", "optimizer"])
        case "restore":
            store.restore()
        case "restore some":
            store.restore(["optimizer", "random"])
        case "work":
            job.work()
        case "trim":
            store.trim()
        case "forget gradients":
            job.forget_gradients()
        case "export":
            store.export()
