"""The order of what the CUDA copier asks of torch. There is no GPU: its streams are stand-ins that keep a record."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from tsched.backends.region import HostPool, Regions, RegionStore
from tsched.backends.region import cuda as region_cuda
from tsched.backends.region.cuda import CudaCopier


class Recorder:
    """Stands for `torch.cuda`."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.made = 0
        self.registered: dict[int, int] = {}

    def Stream(self, device: torch.device) -> RecordedStream:
        self.made += 1
        return RecordedStream("out" if self.made % 2 else "in", self)

    def current_stream(self, device: torch.device) -> str:
        return "current"

    @contextmanager
    def stream(self, stream: RecordedStream) -> Iterator[None]:
        self.said.append(f"copy on {stream.name}")
        yield

    @contextmanager
    def device(self, device: torch.device) -> Iterator[None]:
        yield

    def synchronize(self, device: torch.device) -> None:
        self.said.append("synchronize device")

    def empty_cache(self) -> None:
        self.said.append("empty cache")

    def cudart(self) -> Recorder:
        return self

    def cudaHostRegister(self, address: int, size: int, flags: int) -> int:
        self.registered[address] = size
        return 0

    def cudaHostUnregister(self, address: int) -> int:
        del self.registered[address]
        return 0


class RecordedStream:
    def __init__(self, name: str, recorder: Recorder) -> None:
        self.name, self.recorder = name, recorder

    def wait_stream(self, other: str) -> None:
        self.recorder.said.append(f"{self.name} waits for {other}")

    def record_event(self) -> RecordedStream:
        self.recorder.said.append(f"event on {self.name}")
        return self

    def synchronize(self) -> None:
        self.recorder.said.append(f"wait for event on {self.name}")


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder()
    stand_in: Any = type("Torch", (), {"cuda": recorder, "device": torch.device})
    for name in ("empty", "frombuffer", "uint8", "Tensor", "UntypedStorage"):
        setattr(stand_in, name, getattr(torch, name))
    monkeypatch.setattr(region_cuda, "torch", stand_in)
    return recorder


def test_a_park_waits_for_the_device_then_for_its_copies_and_empties_the_cache_last(recorder: Recorder) -> None:
    state = [torch.arange(10), torch.arange(20)]
    store = RegionStore(Regions().add("x", state), copier_for=CudaCopier)
    store.park()
    assert recorder.said == [
        "synchronize device",
        "copy on out",
        "copy on out",
        "event on out",
        "wait for event on out",
        "event on in",
        "wait for event on in",
        "empty cache",
    ]
    recorder.said.clear()
    store.restore()
    assert recorder.said[:5] == [
        "synchronize device",
        "in waits for current",
        "copy on in",
        "in waits for current",
        "copy on in",
    ]
    assert recorder.said[-2:] == ["event on in", "wait for event on in"]
    assert torch.equal(state[1], torch.arange(20))


def test_host_buffers_are_pinned_once_and_unpinned_before_they_go(recorder: Recorder) -> None:
    pool = HostPool()
    store = RegionStore(Regions().add("x", torch.arange(1000)), copier_for=CudaCopier, pool=pool)
    for _ in range(3):
        store.park()
        assert list(recorder.registered.values()) == [8192]
        store.restore()
    pool.shrink()
    assert not recorder.registered


def test_memory_that_cannot_be_pinned_refuses_the_park_and_leaves_the_state(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "cudaHostRegister", lambda *arguments: 2)
    state = torch.arange(10)
    store = RegionStore(Regions().add("x", state), copier_for=CudaCopier)
    with pytest.raises(RuntimeError, match="does not pin 4096 bytes of host memory: error 2"):
        store.park()
    assert torch.equal(state, torch.arange(10))
