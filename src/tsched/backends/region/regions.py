"""Which parts of a job's state are parked, by name, and which stay.

A source is read anew whenever it is needed, since state comes and goes: gradients appear in the first backward pass,
optimizer moments in the first step. A storage that two regions name belongs to the one that was added first, or to the
first that does not drop it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import torch

from tsched.errors import Invalid, UnknownRegion

Source: TypeAlias = (
    torch.nn.Module
    | torch.optim.Optimizer
    | torch.Generator
    | torch.Tensor
    | Mapping[str, "Source"]
    | Iterable["Source | None"]
    | Callable[[], "Source"]
)


@dataclass(frozen=True, slots=True)
class Region:
    """One named part. What is `drop`ped is not saved: it comes back as zeros, and only when asked for."""

    tag: str
    source: Source
    drop: bool = False


class Regions:
    """A job's regions, in order, and what it shares with others."""

    def __init__(self) -> None:
        self._regions: dict[str, Region] = {}
        self._shared: list[Source] = []

    def add(self, tag: str, source: Source, *, drop: bool = False) -> Regions:
        """Name a part of the state.

        Args:
            source: a module (parameters, their gradients, buffers), an optimizer (its state), a generator of random
                numbers, tensors (with their gradients), or a callable that gives any of these. A generator that other
                jobs of this process draw from too, as the default one, serves only jobs that are never here together.
            drop: the bytes need not be saved, such as those of a KV cache; see `RegionStore.refill`.
        """
        if not tag or tag in self._regions:
            raise Invalid(f"regions: the tag {tag!r} is {'taken' if tag else 'empty'}; give each region its own")
        self._regions[tag] = Region(tag, _readable(source), drop)
        return self

    def share(self, source: Source) -> Regions:
        """Name what stays in device memory although a region may hold it too: the frozen base of many adapters."""
        self._shared.append(_readable(source))
        return self

    @property
    def tags(self) -> tuple[str, ...]:
        return tuple(self._regions)

    @property
    def shared(self) -> tuple[Source, ...]:
        return tuple(self._shared)

    def __iter__(self) -> Iterator[Region]:
        return iter(tuple(self._regions.values()))

    def chosen(self, tags: Iterable[str]) -> frozenset[str]:
        """These tags, all where none is named. Raises `UnknownRegion` for one that does not exist."""
        wanted = tuple(tags)
        for tag in wanted:
            if tag not in self._regions:
                raise UnknownRegion(f"no region {tag!r} is registered; there are: {', '.join(self.tags) or 'none'}")
        return frozenset(wanted or self.tags)


def _readable(source: Source) -> Source:
    """What can be read again and again; `model.parameters()` is empty the second time."""
    return list(source) if isinstance(source, Iterator) else source
