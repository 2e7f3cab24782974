"""One job's regions: parked, restored, trimmed, exported, discarded; synchronous, and safe between threads.

The job must not use what is being moved: a store is for the time between two phases. What is `drop`ped comes back with
`refill`, not with `restore`: it is no part of the state that a scheduler brings in, possibly beside another job's turn,
but of what the job itself takes during its own.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

import torch

from tsched.backends import Sizes
from tsched.backends.arena import Arena
from tsched.backends.region import adoption, copiers
from tsched.backends.region.claims import References, Usage, nbytes
from tsched.backends.region.copiers import CopierFor
from tsched.backends.region.export import export
from tsched.backends.region.host import HostPool
from tsched.backends.region.ledger import Ledger
from tsched.backends.region.regions import Regions
from tsched.backends.region.survey import Holding, Survey, check_names, check_present, take
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
        usage: who uses which storage, so that what other jobs use too stays; this job alone by default.

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
        usage: Usage | None = None,
    ) -> None:
        self.regions, self.owner = regions, owner
        self._pool = pool or HostPool()
        self._copier_for, self._checksums = copier_for, checksums
        self._lock = threading.RLock()
        self._parked: dict[int, Parked] = {}
        self._random: dict[str, tuple[str, torch.Generator, torch.Tensor]] = {}
        self._ledger = Ledger(owner, arena, self._parked, usage or Usage())
        self._ended = ""
        self._begin()

    @property
    def resident_bytes(self) -> int:
        """Device bytes of this job alone, in the storages themselves, as far as they were seen."""
        return self._ledger.weigh().resident

    @property
    def parked_bytes(self) -> int:
        """Host bytes held for it."""
        return sum(part.size_bytes for part in list(self._parked.values()) if part.piece is not None)

    @property
    def sizes(self) -> Sizes:
        _, saved, dropped = self._ledger.weigh()
        return Sizes(saved, dropped, sum(map(nbytes, self.shared.values())))

    @property
    def shared(self) -> References:
        return self._ledger.claims.shared

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
            random = {name: (tag, it, it.get_state()) for tag, name, it in survey.generators if tag in chosen}
            self._take_out([holding for holding in self._movable(survey) if holding.tag in chosen])
            self._random = random | self._random

    def restore(self, tags: Iterable[str] = ()) -> None:
        """Bring these regions back, and free their host memory. What is on the device stays as it is.

        Raises:
            DeviceMemoryFull: they stay parked, with nothing of them on the device; so with any other error.
        """
        with self._lock:
            self._check_here()
            chosen = self.regions.chosen(tags)
            self._bring_in([part for part in self._parked.values() if part.piece is not None and part.tag in chosen])
            for tag, generator, state in self._random.values():
                if tag in chosen:
                    generator.set_state(state)
            self._random = {name: saved for name, saved in self._random.items() if saved[0] not in chosen}

    def refill(self, tags: Iterable[str] = ()) -> None:
        """Allocate again what was dropped, filled with zeros; for the job, when its turn begins."""
        with self._lock:
            self._check_here()
            chosen = self.regions.chosen(tags)
            self._bring_in([part for part in self._parked.values() if part.piece is None and part.tag in chosen])

    def trim(self) -> int:
        """Drop what may be dropped, give back caches that others need, and charge the arena for what has grown.

        Returns:
            The bytes of the state that stays, or that is parked.

        Raises:
            DeviceMemoryFull: the state has outgrown the arena; it is on the device all the same.
        """
        with self._lock:
            self._check_here()
            self._ledger.notice(self.regions)
            if self._ledger.claims.dropped.difference(self._parked):
                self._take_out([holding for holding in self._movable(take(self.regions)) if holding.drop])
            self._transfer().trim(self._ledger.claims.devices)
            resident, saved, _ = self._ledger.weigh()
            self._ledger.charge_for(resident)
            return saved

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
            doomed = self._movable(survey)
            parts = [Parked(it.storage, 0, it.tag, (), None, None) for it in doomed if it.storage.resizable()]
            self._transfer().empty(parts)
            for holding in doomed:
                if not holding.storage.resizable():
                    adoption.let_go(holding)
            self._end("was discarded")

    def close(self) -> None:
        """The job is looked after here no longer: what is resident is left to it, what is parked is dropped."""
        with self._lock:
            if not self._ended:
                self._end("was closed")

    def _begin(self) -> None:
        try:
            survey = self._survey()
            check_present(survey)
            check_names(survey)
            self._ledger.charge_for(self.resident_bytes)
        except BaseException:
            self._end("was refused")
            raise

    def _take_out(self, holdings: list[Holding]) -> None:
        adoption.check(holdings)
        transfer = self._transfer()
        parked = {part.storage._cdata: part for part in transfer.copy_out(holdings, self._pool)}
        self._parked.update(parked)
        try:
            if not parked.keys() <= self._ledger.claims.own.keys():  # some were adopted
                self._ledger.notice(self.regions)
            transfer.empty(list(parked.values()))
        except BaseException:
            self._forget([key for key, part in parked.items() if part.is_back])
            raise
        finally:
            self._ledger.settle()

    def _bring_in(self, parts: list[Parked]) -> None:
        if not parts:
            return
        size = sum(part.size_bytes for part in parts)
        self._ledger.charge(size)
        try:
            self._transfer().fill(parts)
        except BaseException:
            self._ledger.charge(-size)
            raise
        self._forget([part.storage._cdata for part in parts])
        del parts[:]  # with them go storages that the job let go of meanwhile
        self._ledger.settle()

    def _forget(self, keys: list[int]) -> None:
        parts = [self._parked.pop(key) for key in keys]
        self._pool.give([part.piece for part in parts if part.piece is not None])

    def _survey(self) -> Survey:
        self._ledger.notice(self.regions)
        return take(self.regions)

    def _movable(self, survey: Survey) -> list[Holding]:
        return [holding for holding in survey.on_device() if self._is_movable(holding.storage)]

    def _is_movable(self, storage: torch.UntypedStorage) -> bool:
        key = storage._cdata
        return bool(storage.nbytes()) and key not in self._parked and self._ledger.is_alone_on(key)

    def _transfer(self) -> Transfer:
        return Transfer(self._copier_for, checksums=self._checksums)

    def _end(self, how: str) -> None:
        self._forget(list(self._parked))
        self._random.clear()
        self._ledger.close()
        self._ended = how

    def _check_here(self) -> None:
        if self._ended:
            raise BackendError(f"{self.owner}: its store {self._ended}; make a new one for a new state")
