"""What a job's state is at this moment: its distinct storages, each with every tensor known to lie on it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from tsched.backends.region.reading import read
from tsched.backends.region.regions import Regions, Source
from tsched.errors import Invalid

References: TypeAlias = dict[int, StorageWeakRef]


@dataclass(frozen=True, slots=True)
class Layout:
    """How one tensor lies on its storage, and which region names it how."""

    tag: str
    name: str
    dtype: torch.dtype
    shape: torch.Size
    stride: tuple[int, ...]
    offset: int

    @classmethod
    def of(cls, tag: str, name: str, tensor: torch.Tensor) -> Layout:
        return cls(tag, name, tensor.dtype, tensor.shape, tensor.stride(), int(tensor.storage_offset()))

    def over(self, storage: torch.UntypedStorage) -> torch.Tensor:
        """A tensor of this layout on another storage."""
        tensor = torch.empty(0, dtype=self.dtype, device=storage.device)
        return tensor.set_(storage, self.offset, self.shape, self.stride)


@dataclass(slots=True, eq=False)
class Holding:
    """One storage; `tensors` are all that are known to lie on it, by identity."""

    storage: torch.UntypedStorage
    tag: str
    drop: bool
    layouts: list[Layout] = field(default_factory=list)
    tensors: dict[int, torch.Tensor] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Survey:
    """The storages of the regions, those that are shared, and the generators as (tag, name, generator)."""

    holdings: dict[int, Holding] = field(default_factory=dict)
    shared: dict[int, Holding] = field(default_factory=dict)
    generators: list[tuple[str, str, torch.Generator]] = field(default_factory=list)

    def on_device(self) -> list[Holding]:
        """What there is to move: beside an accelerator's storages, those in host memory are where they should be."""
        holdings = list(self.holdings.values())
        away = [holding for holding in holdings if holding.storage.device.type != "cpu"]
        return away or holdings


def take(regions: Regions) -> Survey:
    """Read every source. Raises `Invalid` for a tensor whose memory is not one plain storage."""
    survey = Survey()
    for source in regions.shared:
        _note(survey, survey.shared, source, "", drop=False)
    for region in regions:
        _note(survey, survey.holdings, region.source, region.tag, region.drop)
    return survey


def check_present(survey: Survey) -> None:
    """Raises `Invalid` where a tensor's memory is not there: another store has parked or discarded it."""
    for holding in survey.holdings.values():
        for layout in holding.layouts:
            if layout.shape.numel() and not holding.storage.nbytes():
                raise Invalid(
                    f"the memory of tensor {layout.name!r} is not there: it was parked or discarded as another job's; "
                    "restore that first, and name what both use in share()"
                )


def references(holdings: Iterable[Holding]) -> References:
    """Storages without keeping them; an address is not used again while its reference exists."""
    return {
        holding.storage._cdata: StorageWeakRef(holding.storage)  # type: ignore[no-untyped-call]
        for holding in holdings
    }


def new_storage(size_bytes: int, device: torch.device | str = "cpu") -> torch.UntypedStorage:
    """Memory that torch owns."""
    return torch.UntypedStorage(size_bytes, device=device)  # type: ignore[no-untyped-call]


def nbytes(reference: StorageWeakRef) -> int:
    """What this storage weighs; 0 where it does not exist any more."""
    storage: torch.UntypedStorage | None = torch.UntypedStorage._new_with_weak_ptr(reference.cdata)
    return 0 if storage is None else storage.nbytes()


def _note(survey: Survey, into: dict[int, Holding], source: Source, tag: str, drop: bool) -> None:
    for name, state in read(source, tag or "shared"):
        if isinstance(state, torch.Generator):
            survey.generators.append((tag, name, state))
            continue
        _check(name, state)
        storage = state.untyped_storage()
        holding = survey.shared.get(storage._cdata) or into.setdefault(storage._cdata, Holding(storage, tag, drop))
        holding.layouts.append(Layout.of(tag, name, state))
        holding.tensors[id(state)] = state
        if state._base is not None:
            holding.tensors[id(state._base)] = state._base


def _check(name: str, tensor: torch.Tensor) -> None:
    kind = type(tensor)
    if torch.nn.parameter.is_lazy(tensor):
        raise Invalid(f"tensor {name!r} is not initialized yet: run the module once before its first turn ends")
    if tensor.is_meta:
        raise Invalid(f"tensor {name!r} is on the meta device and holds nothing: load it, or leave it out")
    if kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        raise Invalid(f"tensor {name!r} is a {kind.__name__}, which holds others: add the tensors inside it instead")
    if tensor.layout != torch.strided:
        raise Invalid(f"tensor {name!r} is {tensor.layout}: only strided ones lie on one storage; add its parts")
