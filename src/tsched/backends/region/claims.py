"""Which storages a job uses at this moment, without more about them: cheap enough for the end of every turn.

Nothing is made here for a tensor that was there before, so that a survey of a thousand of them does not set off the
collector of garbage, whose pass costs more than all the rest.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Set
from typing import NamedTuple, TypeAlias

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from tsched.backends.region.reading import read, storage_of
from tsched.backends.region.regions import Regions

References: TypeAlias = dict[int, StorageWeakRef]


class Claims(NamedTuple):
    """Storages by address: what is to be moved, what of that may be dropped, and what is shared and stays.

    Beside an accelerator's storages, those in host memory, such as an optimizer's counters, are where they should be.
    Claims are never changed, so that other threads may read them.
    """

    own: References
    dropped: frozenset[int]
    shared: References
    devices: frozenset[torch.device]


NO_CLAIMS = Claims({}, frozenset(), {}, frozenset())


def claim(regions: Regions, known: Mapping[int, StorageWeakRef]) -> Claims:
    """Read every source; references that are `known` are used again. Raises `Invalid` for what has no plain storage."""
    shared: References = {}
    for source in regions.shared:
        for name, state in read(source, "shared"):
            if isinstance(state, torch.Tensor):
                _refer(shared, known, storage_of(name, state))
    home: References = {}
    away: References = {}
    dropped: set[int] = set()
    devices: set[torch.device] = set()
    for region in regions:
        for name, state in read(region.source, region.tag):
            if not isinstance(state, torch.Tensor):
                continue
            storage = storage_of(name, state)
            if storage._cdata in shared:
                continue
            new = _refer(home if state.is_cpu else away, known, storage)
            if new and not state.is_cpu:
                devices.add(state.device)
            if new and region.drop:
                dropped.add(storage._cdata)
            elif not region.drop:
                dropped.discard(storage._cdata)
    own = away or home
    return Claims(own, frozenset(dropped).intersection(own), shared, frozenset(devices or {torch.device("cpu")}))


def nbytes(reference: StorageWeakRef) -> int:
    """What this storage weighs; 0 where it does not exist any more."""
    storage: torch.UntypedStorage | None = torch.UntypedStorage._new_with_weak_ptr(reference.cdata)
    return 0 if storage is None else storage.nbytes()


def _refer(into: References, known: Mapping[int, StorageWeakRef], storage: torch.UntypedStorage) -> bool:
    """Whether it is new among them. Nothing is kept by it, and its address is not used again while it exists."""
    key = storage._cdata
    if key in into:
        return False
    reference = known.get(key)
    into[key] = StorageWeakRef(storage) if reference is None else reference  # type: ignore[no-untyped-call]
    return True


class Usage:
    """How many jobs claim a storage. What several do, though none has named it as shared, is left where it is."""

    def __init__(self) -> None:
        self._jobs: dict[int, int] = {}
        self._lock = threading.Lock()

    def replace(self, before: Set[int], now: Set[int]) -> None:
        """One job's claims have changed."""
        if before == now:
            return
        with self._lock:
            for key in now - before:
                self._jobs[key] = self._jobs.get(key, 0) + 1
            for key in before - now:
                self._jobs[key] -= 1
                if not self._jobs[key]:
                    del self._jobs[key]

    def by_others(self, key: int) -> bool:
        """Whether a storage that this job claims is another's as well."""
        return self._jobs.get(key, 0) > 1
