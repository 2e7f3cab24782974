"""What comes back is on the device that it was on. There is one real device here; torch's meta device is the second."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.test_backends_region_training import Training, network
from tsched.backends.region import CpuCopier, HostPool, RegionStore
from tsched.backends.region.host import Slice
from tsched.backends.region.survey import Holding, Survey, new_storage
from tsched.backends.region.transfer import Transfer


class Recording(CpuCopier):
    """Notes where it copies; on the meta device there is nothing to copy."""

    def __init__(self, device: torch.device, said: list[tuple[str, str, str]]) -> None:
        self._device, self._said = device.type, said

    def copy_out(self, storage: torch.UntypedStorage, to: Slice) -> None:
        self._note("out", storage, lambda: CpuCopier.copy_out(self, storage, to))

    def copy_in(self, storage: torch.UntypedStorage, source: Slice) -> None:
        self._note("in", storage, lambda: CpuCopier.copy_in(self, storage, source))

    def _note(self, way: str, storage: torch.UntypedStorage, copy: Callable[[], None]) -> None:
        self._said.append((way, self._device, storage.device.type))
        if storage.device.type != "meta":
            copy()


def holding(tensor: torch.Tensor, name: str) -> Holding:
    return Holding(tensor.untyped_storage(), "x", False, [("x", name, tensor)])


def test_each_storage_of_a_job_on_two_devices_goes_and_comes_by_its_own_devices_copier() -> None:
    tensors = {device: torch.ones(10, device=device) for device in ("cpu", "meta")}
    said: list[tuple[str, str, str]] = []
    transfer = Transfer(lambda device: Recording(device, said), checksums=False)
    parked = transfer.copy_out([holding(tensor, device) for device, tensor in tensors.items()], HostPool())
    transfer.empty(parked)
    assert [tensor.untyped_storage().nbytes() for tensor in tensors.values()] == [0, 0]
    transfer.fill(parked)
    assert said == [(way, device, device) for way in ("out", "in") for device in tensors]
    assert [tensor.device.type for tensor in tensors.values()] == list(tensors)
    assert [tensor.untyped_storage().nbytes() for tensor in tensors.values()] == [40, 40]
    assert torch.equal(tensors["cpu"], torch.ones(10))


def test_beside_an_accelerators_storages_the_counters_of_an_optimizer_stay_where_they_are() -> None:
    weight, counter = (Holding(new_storage(8, device), "x", False) for device in ("meta", "cpu"))
    assert Survey({1: weight, 2: counter}).on_device() == [weight]
    assert Survey({2: counter}).on_device() == [counter]


@pytest.mark.parametrize("optimizer", [torch.optim.AdamW, torch.optim.Adagrad])
def test_moments_come_back_beside_their_parameters(optimizer: type[torch.optim.Optimizer]) -> None:
    job = Training(network(), optimizer)
    job.step()
    store = RegionStore(job.regions())
    places = {
        (id(state), state.device, state.dtype, state.untyped_storage()._cdata)
        for states in job.optimizer.state.values()
        for state in states.values()
    }
    store.park()
    store.restore()
    for parameter, states in job.optimizer.state.items():
        for state in states.values():
            assert (id(state), state.device, state.dtype, state.untyped_storage()._cdata) in places
            assert state.device == parameter.device
    job.step()
