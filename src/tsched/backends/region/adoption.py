"""Storages that cannot be resized (safetensors, memory maps, numpy arrays) become owned ones before they are parked.

Every known tensor on such a storage is pointed at a copy of it, with its offset, shape and strides. A tensor that is
not known would go on using the old memory and part from the others in silence; the storage's use count shows whether
there is one, and then nothing is done. What torch cannot count is not seen: the array behind a `from_numpy` tensor
keeps its memory and goes its own way.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import torch

from tsched.backends.region.copiers import CopierFor
from tsched.backends.region.survey import Holding, Layout, new_storage
from tsched.errors import Invalid


def check(holdings: Iterable[Holding]) -> None:
    """Raises `Invalid` for a storage that can neither be resized nor safely replaced; changes nothing."""
    foreign = []
    for holding in holdings:
        _check_shared(holding)
        if not holding.storage.resizable():
            _check_aliases(holding)
            foreign.append(holding)
    ranges = sorted((h.storage.data_ptr(), h.storage.nbytes(), h.name) for h in foreign)
    for (start, size, name), (following, _, other) in pairwise(ranges):
        if following < start + size:
            raise Invalid(f"tensors {name!r} and {other!r} lie on the same memory through two storages: clone one")


def adopt(holding: Holding, copier_for: CopierFor) -> None:
    """Put its tensors on a storage that torch owns, bit for bit; nothing to do where it is one."""
    old = holding.storage
    if old.resizable():
        return
    owned = new_storage(old.nbytes(), old.device)
    copier_for(old.device).duplicate(old, owned)
    for tensor in holding.tensors:
        tensor.data = Layout.of("", "", tensor).over(owned)
    holding.storage = owned


def let_go(holding: Holding) -> None:
    """Its tensors lose their memory, which is free when nothing else uses it: a discard of what cannot be emptied."""
    for tensor in holding.tensors:
        tensor.data = torch.empty(0, dtype=tensor.dtype, device=tensor.device)


def _check_shared(holding: Holding) -> None:
    """Torch says of all CUDA memory that it is shared, and resizes shared CPU memory by parting from the others."""
    if holding.storage.device.type == "cpu" and holding.storage.is_shared():
        raise Invalid(f"tensor {holding.name!r} is in memory that processes share: name it in share(), or clone it")


def _check_aliases(holding: Holding) -> None:
    storage = holding.storage
    used = torch._C._storage_Use_Count(storage._cdata)
    known = len(holding.tensors) + 1  # the storage object in our hand
    if used > known:
        raise Invalid(
            f"tensor {holding.name!r} lies on memory that torch does not own, and {used - known} tensors that no "
            "region names use it too: name them, let go of them, or clone it"
        )
