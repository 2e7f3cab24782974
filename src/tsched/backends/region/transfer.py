"""The bytes of storages to host memory and back, all of them or none.

Copying out changes nothing on the device, and emptying comes only when every copy is whole; filling that fails empties
again what it had filled. The host copies are never touched by a move in.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import torch

from tsched.backends.region import touch
from tsched.backends.region.adoption import adopt
from tsched.backends.region.copiers import Copier, CopierFor
from tsched.backends.region.host import HostPool, Slice
from tsched.backends.region.survey import Holding, Layout
from tsched.errors import BackendError, DeviceMemoryFull


@dataclass(frozen=True, slots=True, eq=False)
class Parked:
    """One storage away from its device, with its copy; `piece` is None where the bytes were dropped."""

    storage: torch.UntypedStorage
    size_bytes: int
    tag: str
    layouts: tuple[Layout, ...]
    piece: Slice | None
    checksum: int | None

    @property
    def is_back(self) -> bool:
        """Whether the device has its memory; what is in it is said by the move that put it there."""
        return self.storage.nbytes() == self.size_bytes

    def empty(self) -> None:
        self.storage.resize_(0)
        touch.forbid(self.storage)

    def allocate(self) -> None:
        touch.allow(self.storage)
        try:
            self.storage.resize_(self.size_bytes)
        except RuntimeError as error:
            if not _is_full(error):
                raise
            raise DeviceMemoryFull(f"{self.storage.device} has no {self.size_bytes} bytes: {error}") from error

    def check(self) -> None:
        """Raises `BackendError` where the host copy is not what was put there."""
        if self.piece is not None and self.checksum != (None if self.checksum is None else _sum(self.piece)):
            raise BackendError(
                f"the host copy of {self.layouts[0].name!r} has changed while it was parked: it stays parked; "
                "discard the job and start from its last checkpoint"
            )


class Transfer:
    """One move; a new one each time, so that moves of different jobs share no stream."""

    def __init__(self, copier_for: CopierFor, *, checksums: bool) -> None:
        self._copier_for = copier_for
        self._checksums = checksums
        self._copiers: dict[torch.device, Copier] = {}

    def copy_out(self, holdings: Sequence[Holding], pool: HostPool) -> list[Parked]:
        """Host copies of these; the device keeps its own. Raises `HostMemoryFull` before anything is done."""
        saved = [holding for holding in holdings if not holding.drop]
        pieces = pool.take([holding.storage.nbytes() for holding in saved])
        try:
            for holding in holdings:
                adopt(holding, self._copier)
            for holding, piece in zip(saved, pieces, strict=True):
                self._copier(holding.storage.device).copy_out(holding.storage, piece)
            self._synchronize()
            copies = dict(zip(map(id, saved), pieces, strict=True))
            return [self._parked(holding, copies.get(id(holding))) for holding in holdings]
        except BaseException:
            self._settle()
            pool.give(pieces)
            raise

    def empty(self, parked: Sequence[Parked]) -> None:
        """Free the device's copies; where that fails, they are there again, as far as the device lets them.

        What could not be brought back stays empty (`is_back` says so) and its host copy must be kept.
        """
        emptied: list[Parked] = []
        try:
            for part in parked:
                emptied.append(part)
                part.empty()
            self.release(part.storage.device for part in parked)
        except BaseException:
            for part in emptied:
                with suppress(Exception):
                    self.fill([part])
            raise

    def fill(self, parked: Sequence[Parked]) -> None:
        """Bring these back; where that fails, nothing of them is on the device."""
        for part in parked:
            part.check()
        begun: list[Parked] = []
        try:
            self._fill(parked, begun)
        except BaseException:
            self._settle()
            for part in begun:
                part.empty()
            with suppress(Exception):
                self.release(part.storage.device for part in begun)
            raise

    def release(self, devices: Iterable[torch.device]) -> None:
        """Give back what a park has freed and is only cached."""
        for device in dict.fromkeys(devices):
            self._copier(device).release()

    def trim(self, devices: Iterable[torch.device]) -> None:
        """The same at the end of a turn, where that is needed for another job to have the memory."""
        for device in dict.fromkeys(devices):
            self._copier(device).trim()

    def _fill(self, parked: Sequence[Parked], begun: list[Parked]) -> None:
        for part in parked:
            begun.append(part)
            part.allocate()
            copier = self._copier(part.storage.device)
            if part.piece is None:
                copier.clear(part.storage)
            else:
                copier.copy_in(part.storage, part.piece)
        self._synchronize()

    def _parked(self, holding: Holding, piece: Slice | None) -> Parked:
        checksum = _sum(piece) if self._checksums and piece is not None else None
        return Parked(holding.storage, holding.storage.nbytes(), holding.tag, holding.layouts(), piece, checksum)

    def _copier(self, device: torch.device) -> Copier:
        if device not in self._copiers:
            copier = self._copier_for(device)
            copier.begin()
            self._copiers[device] = copier
        return self._copiers[device]

    def _synchronize(self) -> None:
        for copier in self._copiers.values():
            copier.synchronize()

    def _settle(self) -> None:
        """Before memory is given up: no copy may still be under way to or from it."""
        for copier in self._copiers.values():
            with suppress(Exception):
                copier.synchronize()


def _is_full(error: RuntimeError) -> bool:
    """Whether it is memory that lacks, and not the device that is broken; torch has no type for it on a CPU."""
    return isinstance(error, torch.OutOfMemoryError) or "allocate memory" in str(error)


def _sum(piece: Slice) -> int:
    with memoryview(piece.buffer.mapping) as whole, whole[piece.offset : piece.offset + piece.size_bytes] as part:
        return zlib.crc32(part)
