"""One job's regions: parked, restored, trimmed, exported, discarded; synchronous, and safe between threads.

The job must not use what is being moved: a store is for the time between two phases. What is `drop`ped comes back with
`refill`, not with `restore`: it is no part of the state that a scheduler brings in, possibly beside another job's turn,
but of what the job itself takes during its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable

import torch

from tsched.backends import Sizes
from tsched.backends.arena import Arena
from tsched.backends.region import adoption, copiers
from tsched.backends.region.copiers import CopierFor
from tsched.backends.region.export import export
from tsched.backends.region.host import HostPool
from tsched.backends.region.regions import Regions
from tsched.backends.region.survey import Holding, References, Survey, check_present, nbytes, references, take
from tsched.backends.region.transfer import Parked, Transfer
from tsched.errors import BackendError


class RegionStore:
    """One job's regions.

    Args:
        regions: what belongs to the job.
        owner: its name in the arena and in errors.
        arena: what its device memory is charged to, from now on; None where nothing is counted.
        pool: where host copies lie; its own by default.
        checksums: whether host copies are checked when they are brought back.
        copier_for: what copies, for each device.
        elsewhere: the addresses of storages that other jobs use too, which therefore stay.

    Raises:
        DeviceMemoryFull: the arena has no room for the job as it is.
        Invalid: a source holds what has no plain storage.
    """

    def __init__(
        self,
        regions: Regions,
        *,
        owner: str = "job",
        arena: Arena | None = None,
        pool: HostPool | None = None,
        checksums: bool = False,
        copier_for: CopierFor = copiers.copier_for,
        elsewhere: Callable[[], Collection[int]] = frozenset,
    ) -> None:
        self.regions, self.owner = regions, owner
        self._arena, self._pool, self._elsewhere = arena, pool or HostPool(), elsewhere
        self._copier_for, self._checksums = copier_for, checksums
        self._lock = threading.RLock()
        self._parked: dict[int, Parked] = {}
        self._random: dict[str, tuple[str, torch.Generator, torch.Tensor]] = {}
        self._own: References = {}
        self._shared: References = {}
        self._dropped: frozenset[int] = frozenset()
        self._charged = 0
        self._ended = ""
        check_present(self._survey())
        self._charge(self.resident_bytes)

    @property
    def resident_bytes(self) -> int:
        """Device bytes of this job alone, in the storages themselves, as far as they were seen."""
        others = self._elsewhere()
        return sum(nbytes(reference) for key, reference in list(self._own.items()) if key not in others)

    @property
    def parked_bytes(self) -> int:
        """Host bytes held for it."""
        return sum(part.size_bytes for part in list(self._parked.values()) if part.piece is not None)

    @property
    def sizes(self) -> Sizes:
        saved = dropped = 0
        others = self._elsewhere()
        for key, reference in list(self._own.items()):
            part = self._parked.get(key)
            size = nbytes(reference) if part is None else part.size_bytes
            size = 0 if key in others else size
            saved, dropped = (saved, dropped + size) if key in self._dropped else (saved + size, dropped)
        return Sizes(saved, dropped, sum(map(nbytes, self._shared.values())))

    @property
    def claims(self) -> frozenset[int]:
        """The addresses of the storages that this job uses."""
        return frozenset(self._own) | frozenset(self._shared)

    @property
    def shared(self) -> References:
        return dict(self._shared)

    def park(self, tags: Iterable[str] = ()) -> None:
        """Move these regions, by default all, to host memory and free their device memory. Parked ones stay so.

        Raises:
            HostMemoryFull: nothing was moved; so with any other error.
            UnknownRegion: there is no such tag.
            Invalid: a tensor cannot be parked; the text says why.
        """
        with self._lock:
            self._check_here()
            chosen = self.regions.chosen(tags)
            survey = self._survey()
            self._take_out([holding for holding in self._movable(survey) if holding.tag in chosen])
            for tag, name, generator in survey.generators:
                if tag in chosen:
                    self._random.setdefault(name, (tag, generator, generator.get_state()))

    def restore(self, tags: Iterable[str] = ()) -> None:
        """Bring these regions back, and free their host memory. What is on the device stays as it is.

        Raises:
            DeviceMemoryFull: they stay parked, with nothing of them on the device; so with any other error.
        """
        with self._lock:
            self._check_here()
            chosen = self.regions.chosen(tags)
            self._bring_in([part for part in self._parked.values() if part.piece is not None and part.tag in chosen])
            for name, (tag, generator, state) in list(self._random.items()):
                if tag in chosen:
                    generator.set_state(state)
                    del self._random[name]

    def refill(self, tags: Iterable[str] = ()) -> None:
        """Allocate again what was dropped, filled with zeros; for the job, when its turn begins."""
        with self._lock:
            self._check_here()
            chosen = self.regions.chosen(tags)
            self._bring_in([part for part in self._parked.values() if part.piece is None and part.tag in chosen])

    def trim(self) -> int:
        """Drop what may be dropped, empty caches, and charge the arena for what has grown.

        Returns:
            The bytes of the state that stays, or that is parked.

        Raises:
            DeviceMemoryFull: the state has outgrown the arena; it is on the device all the same.
        """
        with self._lock:
            self._check_here()
            survey = self._survey()
            self._take_out([holding for holding in self._movable(survey) if holding.drop])
            self._transfer().release(holding.storage.device for holding in survey.on_device())
            self._charge(self.resident_bytes - self._charged)
            return self.sizes.save_bytes

    def export(self, tags: Iterable[str] = ()) -> dict[str, torch.Tensor]:
        """Copies in CPU memory, of what is parked from its host copy, by "tag.name". No move runs meanwhile.

        What is dropped or shared is left out. A job exports what is on the device only while it does not compute.
        """
        with self._lock:
            self._check_here()
            chosen = self.regions.chosen(tags)
            return export(take(self.regions), list(self._parked.values()), self._random, chosen, self._copier_for)

    def discard(self) -> None:
        """Free the state on the device and on the host. Its tensors stay empty; whoever touches one is refused."""
        with self._lock:
            if self._ended:
                return
            survey = self._survey()
            doomed = [holding for holding in self._movable(survey) if holding.storage.resizable()]
            parts = [Parked(holding.storage, 0, holding.tag, (), None, None) for holding in doomed]
            self._transfer().empty(parts)
            self._end("was discarded")

    def close(self) -> None:
        """The job is looked after here no longer: what is resident is left to it, what is parked is dropped."""
        with self._lock:
            if not self._ended:
                self._end("was closed")

    def _take_out(self, holdings: list[Holding]) -> None:
        adoption.check(holdings)
        transfer = self._transfer()
        parked = {part.storage._cdata: part for part in transfer.copy_out(holdings, self._pool)}
        self._own.update(references(holdings))
        self._parked.update(parked)
        try:
            transfer.empty(list(parked.values()))
        except BaseException:
            self._forget(list(parked))
            raise
        self._settle()

    def _bring_in(self, parts: list[Parked]) -> None:
        size = sum(part.size_bytes for part in parts)
        self._charge(size)
        try:
            self._transfer().fill(parts)
        except BaseException:
            self._charge(-size)
            raise
        self._forget([part.storage._cdata for part in parts])
        del parts[:]
        self._settle()

    def _settle(self) -> None:
        """Give back what is charged for memory that is not there any more."""
        self._charge(min(0, self.resident_bytes - self._charged))

    def _forget(self, keys: list[int]) -> None:
        parts = [self._parked.pop(key) for key in keys]
        self._pool.give([part.piece for part in parts if part.piece is not None])

    def _survey(self) -> Survey:
        survey = take(self.regions)
        holdings = survey.on_device()
        kept = {key: reference for key, reference in self._own.items() if key in self._parked}
        self._own = kept | references(holdings)
        self._shared = references(survey.shared.values())
        self._dropped = frozenset(holding.storage._cdata for holding in holdings if holding.drop)
        return survey

    def _movable(self, survey: Survey) -> list[Holding]:
        stay = {*self._parked, *self._elsewhere()}
        return [h for h in survey.on_device() if h.storage._cdata not in stay and h.storage.nbytes()]

    def _transfer(self) -> Transfer:
        return Transfer(self._copier_for, checksums=self._checksums)

    def _charge(self, size_bytes: int) -> None:
        """More or, where it is negative, less; the arena may refuse more."""
        if self._arena is not None:
            if size_bytes > 0:
                self._arena.charge(self.owner, size_bytes)
            elif size_bytes < 0:
                self._arena.refund(self.owner, -size_bytes)
        self._charged += size_bytes

    def _end(self, how: str) -> None:
        self._forget(list(self._parked))
        self._random.clear()
        self._charge(-self._charged)
        self._own, self._shared, self._ended = {}, {}, how

    def _check_here(self) -> None:
        if self._ended:
            raise BackendError(f"{self.owner}: its store {self._ended}; make a new one for a new state")
