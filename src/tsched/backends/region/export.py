"""Copies of a job's state in CPU memory, for a checkpoint; tied tensors are tied in the copy as well."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import torch

from tsched.backends.region.copiers import CopierFor, copy
from tsched.backends.region.host import Slice
from tsched.backends.region.survey import Layout, Survey, check_names, new_storage
from tsched.backends.region.transfer import Parked


def export(
    survey: Survey,
    parked: Sequence[Parked],
    random: Mapping[str, tuple[str, torch.Generator, torch.Tensor]],
    tags: Collection[str],
    copier_for: CopierFor,
) -> dict[str, torch.Tensor]:
    """What these regions hold, by name; each storage is copied once. Raises `Invalid` where two names are one."""
    check_names(survey)
    copies: dict[str, torch.Tensor] = {}
    away = {part.storage._cdata for part in parked}
    for part in parked:
        layouts = _chosen(part.layouts, tags)
        if part.piece is not None and layouts:
            part.check()
            copies |= _over(layouts, _from_host(part.piece))
    for key, holding in survey.holdings.items():
        layouts = [] if key in away or holding.drop else _chosen(holding.layouts(), tags)
        if layouts:
            copies |= _over(layouts, _from_device(holding.storage, copier_for))
    for tag, name, generator in survey.generators:
        if tag in tags:
            copies[name] = random[name][2].clone() if name in random else generator.get_state()
    return copies


def _chosen(layouts: Sequence[Layout], tags: Collection[str]) -> list[Layout]:
    return [layout for layout in layouts if layout.tag in tags]


def _over(layouts: Sequence[Layout], storage: torch.UntypedStorage) -> dict[str, torch.Tensor]:
    return {layout.name: layout.over(storage) for layout in layouts}


def _from_host(piece: Slice) -> torch.UntypedStorage:
    storage = new_storage(piece.size_bytes)
    copy(storage.data_ptr(), piece.address, piece.size_bytes)
    return storage


def _from_device(storage: torch.UntypedStorage, copier_for: CopierFor) -> torch.UntypedStorage:
    copied = new_storage(storage.nbytes())
    if storage.nbytes():
        copier = copier_for(storage.device)
        copier.begin()
        copier.duplicate(storage, copied)
    return copied
