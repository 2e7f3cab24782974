"""What is to be moved or copied: a job's distinct storages, each with every tensor that is known to lie on it."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import torch

from tsched.backends.region.reading import read, storage_of
from tsched.backends.region.regions import Regions
from tsched.errors import Invalid


@dataclass(frozen=True, slots=True)
class Layout:
    """How one tensor lies on its storage, and which region names it how."""

    tag: str
    name: str
    dtype: torch.dtype
    shape: torch.Size
    stride: tuple[int, ...]
    offset: int
    conjugate: bool
    negative: bool

    @classmethod
    def of(cls, tag: str, name: str, tensor: torch.Tensor) -> Layout:
        place = tensor.shape, tensor.stride(), int(tensor.storage_offset())
        return cls(tag, name, tensor.dtype, *place, tensor.is_conj(), tensor.is_neg())

    def over(self, storage: torch.UntypedStorage) -> torch.Tensor:
        """A tensor of this layout on another storage."""
        tensor = torch.empty(0, dtype=self.dtype, device=storage.device)
        tensor.set_(storage, self.offset, self.shape, self.stride)
        tensor = torch._neg_view(tensor) if self.negative else tensor
        return tensor.conj() if self.conjugate else tensor


@dataclass(slots=True, eq=False)
class Holding:
    """One storage, and the tensors on it as (tag, name, tensor)."""

    storage: torch.UntypedStorage
    tag: str
    drop: bool
    named: list[tuple[str, str, torch.Tensor]] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.named[0][1]

    @property
    def tensors(self) -> list[torch.Tensor]:
        """Each once, with those that they are views of."""
        named = [tensor for _, _, tensor in self.named]
        bases = [tensor._base for tensor in named if tensor._base is not None]
        return list({id(tensor): tensor for tensor in named + bases}.values())

    def layouts(self) -> tuple[Layout, ...]:
        return tuple(Layout.of(tag, name, tensor) for tag, name, tensor in self.named)


@dataclass(slots=True, eq=False)
class Survey:
    """The storages of the regions, without those that are shared, and the generators as (tag, name, generator)."""

    holdings: dict[int, Holding] = field(default_factory=dict)
    generators: list[tuple[str, str, torch.Generator]] = field(default_factory=list)

    def on_device(self) -> list[Holding]:
        """What there is to move: beside an accelerator's storages, those in host memory are where they should be."""
        holdings = list(self.holdings.values())
        away = [holding for holding in holdings if holding.storage.device.type != "cpu"]
        return away or holdings


def take(regions: Regions) -> Survey:
    """Read every source. Raises `Invalid` for a tensor whose memory is not one plain storage."""
    survey, shared = Survey(), _shared(regions)
    for region in regions:
        for name, state in read(region.source, region.tag):
            if isinstance(state, torch.Tensor):
                storage = storage_of(name, state)
                if storage._cdata not in shared:
                    _hold(survey, storage, region.tag, region.drop).named.append((region.tag, name, state))
            else:
                survey.generators.append((region.tag, name, state))
    return survey


def check_names(survey: Survey) -> None:
    """Raises `Invalid` where two states have one name, under which only one of them could be saved."""
    names = [name for _, name, _ in survey.generators]
    names += [name for holding in survey.holdings.values() for _, name, _ in holding.named]
    names.sort()
    for name, following in pairwise(names):
        if name == following:
            raise Invalid(f"two states are named {name!r}: give their regions other tags, or their keys other names")


def check_present(survey: Survey) -> None:
    """Raises `Invalid` where a tensor's memory is not there: another store has parked or discarded it."""
    for holding in survey.holdings.values():
        for _, name, tensor in holding.named:
            if tensor.numel() and not holding.storage.nbytes():
                raise Invalid(
                    f"the memory of tensor {name!r} is not there: it was parked or discarded as another job's; "
                    "restore that first, and name what both use in share()"
                )


def new_storage(size_bytes: int, device: torch.device | str = "cpu") -> torch.UntypedStorage:
    """Memory that torch owns."""
    return torch.UntypedStorage(size_bytes, device=device)  # type: ignore[no-untyped-call]


def _shared(regions: Regions) -> dict[int, torch.UntypedStorage]:
    """By address; the storages are kept so that no other can have it meanwhile."""
    states = [state for source in regions.shared for state in read(source, "shared")]
    storages = [storage_of(name, state) for name, state in states if isinstance(state, torch.Tensor)]
    return {storage._cdata: storage for storage in storages}


def _hold(survey: Survey, storage: torch.UntypedStorage, tag: str, drop: bool) -> Holding:
    holding = survey.holdings.get(storage._cdata)
    if holding is None:
        holding = survey.holdings[storage._cdata] = Holding(storage, tag, drop)
    elif holding.drop and not drop:
        holding.tag, holding.drop = tag, False
    return holding
