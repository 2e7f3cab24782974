"""What every move of a recorded run took, by (job, n): the cost model of an exact replay."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from tsched.costs import FixedTable
from tsched.errors import Invalid
from tsched.sim.durations import MOST_US


class RecordedCosts(Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="recorded"):
    """The n-th node-call of a job takes what it took then; one that the recording lacks takes what `others` says."""

    moves_us: Mapping[str, tuple[int | None, ...]] = field(default_factory=dict)
    others: FixedTable = field(default_factory=FixedTable)

    def __post_init__(self) -> None:
        for job, moves in self.moves_us.items():
            for index, length in enumerate(moves):
                if length is not None and not 0 <= length <= MOST_US:
                    raise Invalid(f"costs.moves_us.{job}[{index}]: {length}, must be from 0 to {MOST_US}")

    def park_us(self, group: str, job: str, size_bytes: int, n: int) -> int:
        known = self._known(job, n)
        return self.others.park_us(group, job, size_bytes, n) if known is None else known

    def restore_us(self, group: str, job: str, size_bytes: int, n: int) -> int:
        known = self._known(job, n)
        return self.others.restore_us(group, job, size_bytes, n) if known is None else known

    def _known(self, job: str, n: int) -> int | None:
        moves = self.moves_us.get(job, ())
        return moves[n] if 0 <= n < len(moves) else None
