"""What one job has on the device: which storages, what they weigh, and what the arena was charged for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tsched.backends.arena import Arena
from tsched.backends.region.claims import NO_CLAIMS, Claims, Usage, claim, nbytes
from tsched.backends.region.regions import Regions
from tsched.backends.region.transfer import Parked


class Weight(NamedTuple):
    """Bytes on the device; those of the state that must be saved, wherever they are; those that may be dropped."""

    resident: int
    saved: int
    dropped: int


class Ledger:
    """Of one job. Weights may be read at any time; all else is for the move that is under way.

    Args:
        parked: what is away now, by address; the store's own, which changes.
        usage: who uses which storage; what other jobs use too is not this one's.
    """

    def __init__(self, owner: str, arena: Arena | None, parked: Mapping[int, Parked], usage: Usage) -> None:
        self.claims = NO_CLAIMS
        self._owner, self._arena, self._parked, self._usage = owner, arena, parked, usage
        self._charged = 0

    def weigh(self) -> Weight:
        """As the storages themselves say, as far as they were seen."""
        claims, resident, saved, dropped = self.claims, 0, 0, 0
        for key, reference in claims.own.items():
            if self._usage.by_others(key):
                continue
            here, part = nbytes(reference), self._parked.get(key)
            size = here if part is None else part.size_bytes
            resident += here
            saved, dropped = (saved, dropped + size) if key in claims.dropped else (saved + size, dropped)
        return Weight(resident, saved, dropped)

    def notice(self, regions: Regions) -> None:
        """See what the job uses now; what is parked stays in view though the job may have let go of it."""
        before = self.claims
        seen = claim(regions, before.own | before.shared)
        kept = {key: reference for key, reference in before.own.items() if key in self._parked}
        self._claim(seen._replace(own=seen.own | kept))

    def is_alone_on(self, key: int) -> bool:
        """Whether no other job uses this storage."""
        return not self._usage.by_others(key)

    def charge(self, size_bytes: int) -> None:
        """More or, where it is negative, less. Raises `DeviceMemoryFull` where the arena has not so much."""
        if self._arena is not None:
            if size_bytes > 0:
                self._arena.charge(self._owner, size_bytes)
            elif size_bytes < 0:
                self._arena.refund(self._owner, -size_bytes)
        self._charged += size_bytes

    def charge_for(self, resident_bytes: int) -> None:
        """So much in all."""
        self.charge(resident_bytes - self._charged)

    def settle(self) -> None:
        """Give back what is charged for memory that is not there any more."""
        self.charge(min(0, self.weigh().resident - self._charged))

    def close(self) -> None:
        self.charge(-self._charged)
        self._claim(NO_CLAIMS)

    def _claim(self, claims: Claims) -> None:
        before, self.claims = self.claims, claims
        self._usage.replace(before.own.keys() | before.shared.keys(), claims.own.keys() | claims.shared.keys())
