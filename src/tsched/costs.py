"""How long it takes to move a job's state: three models, all integer microseconds, all pure.

A model answers for one node's share of one move. `n` numbers the job's node-calls in command order, so that a model
that draws (`Samples`) gives the same answer in a live and in a simulated run. The models are tagged structs: a
scenario file names them by `kind`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Literal, Protocol

from msgspec import Struct, field

from tsched.errors import Invalid
from tsched.model import SECOND_US

MoveKind = Literal["park", "restore", "discard"]


class SwitchCosts(Protocol):
    """What parking and restoring cost; never negative, the same answer for the same arguments."""

    def park_us(self, group: str, job: str, size_bytes: int, n: int) -> int: ...

    def restore_us(self, group: str, job: str, size_bytes: int, n: int) -> int: ...


def move_us(costs: SwitchCosts, kind: MoveKind, group: str, job: str, size_bytes: int, n: int) -> int:
    """The cost of one move on one node; to discard moves nothing and costs nothing."""
    match kind:
        case "park":
            return costs.park_us(group, job, size_bytes, n)
        case "restore":
            return costs.restore_us(group, job, size_bytes, n)
        case "discard":
            return 0


class Bandwidth(Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="bandwidth"):
    """`latency_us` plus the bytes at `bytes_per_s`, rounded up, in either direction."""

    bytes_per_s: int
    latency_us: int = 0

    def __post_init__(self) -> None:
        if self.bytes_per_s <= 0:
            raise Invalid(f"bandwidth: bytes_per_s must be > 0, not {self.bytes_per_s}")
        _not_negative("bandwidth: latency_us", self.latency_us)

    def park_us(self, group: str, job: str, size_bytes: int, n: int) -> int:
        return self.latency_us - (-size_bytes * SECOND_US // self.bytes_per_s)

    def restore_us(self, group: str, job: str, size_bytes: int, n: int) -> int:
        return self.park_us(group, job, size_bytes, n)


class FixedTable(Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="table"):
    """A constant for each group and direction, whatever the size; `default_us` for a group that is not listed."""

    park: Mapping[str, int] = field(default_factory=dict)
    restore: Mapping[str, int] = field(default_factory=dict)
    default_us: int = 0

    def __post_init__(self) -> None:
        _not_negative("table: default_us", self.default_us)
        for name, table in (("park", self.park), ("restore", self.restore)):
            for group, cost_us in table.items():
                _not_negative(f"table: {name} of group {group!r}", cost_us)

    def park_us(self, group: str, job: str, size_bytes: int, n: int) -> int:
        return self.park.get(group, self.default_us)

    def restore_us(self, group: str, job: str, size_bytes: int, n: int) -> int:
        return self.restore.get(group, self.default_us)


class Samples(Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="samples"):
    """One of the measured costs of the group, chosen by (seed, direction, group, job, n) and by nothing else."""

    park: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    restore: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    default_us: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        _not_negative("samples: default_us", self.default_us)
        for name, table in (("park", self.park), ("restore", self.restore)):
            for group, measured in table.items():
                if not measured:
                    raise Invalid(f"samples: {name} of group {group!r} needs at least one measured cost, not none")
                for cost_us in measured:
                    _not_negative(f"samples: {name} of group {group!r}", cost_us)

    def park_us(self, group: str, job: str, size_bytes: int, n: int) -> int:
        return self._choose("park", self.park.get(group), group, job, n)

    def restore_us(self, group: str, job: str, size_bytes: int, n: int) -> int:
        return self._choose("restore", self.restore.get(group), group, job, n)

    def _choose(self, way: str, measured: tuple[int, ...] | None, group: str, job: str, n: int) -> int:
        if measured is None:
            return self.default_us
        return measured[draw64(self.seed, way, group, job, n) * len(measured) >> 64]


Costs = Bandwidth | FixedTable | Samples


def draw64(*key: object) -> int:
    """64 uniform bits that depend on the key alone: the same in every process and on every version of Python."""
    return int.from_bytes(hashlib.blake2b(repr(key).encode(), digest_size=8).digest(), "big")


def _not_negative(what: str, value: int) -> None:
    if value < 0:
        raise Invalid(f"{what} must be >= 0, not {value}")
