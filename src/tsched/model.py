"""The nouns: groups of devices and the jobs that take turns on them.

Immutable values, checked when made. Times are integer microseconds, sizes bytes; `seconds()` converts at
the edges. Nothing here decides or does anything.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from msgspec import Struct, field

from tsched.errors import Invalid

SECOND_US = 1_000_000
MAX_WEIGHT = 1e9


def seconds(value: float) -> int:
    """Seconds as integer microseconds; raises `Invalid` for what is negative or not finite."""
    if not math.isfinite(value) or value < 0:
        raise Invalid(f"a duration must be a finite number of seconds >= 0, not {value!r}")
    return round(value * SECOND_US)


class Group(Struct, frozen=True, forbid_unknown_fields=True):
    """A named pool of devices that is granted as one.

    `capacity_bytes` is the memory of each node, or None where it is unknown (then one job at a time is
    resident). `nodes` park and restore in parallel. `lease_ttl_us` ends a lease that is not renewed,
    `max_hold_us` one that lasts too long, whoever renews it. With `max_phase_us` and `suspendable` a
    phase that outlasts it is suspended when another job waits. `prefetch` restores the next job's state
    before the holder yields, where it fits. A move is tried 1 + `retries` times, each within
    `move_timeout_us`.
    """

    name: str
    capacity_bytes: int | None = None
    nodes: tuple[str, ...] = ("0",)
    lease_ttl_us: int | None = None
    max_hold_us: int | None = None
    max_phase_us: int | None = None
    suspendable: bool = False
    prefetch: bool = True
    move_timeout_us: int = 300 * SECOND_US
    retries: int = 1

    def __post_init__(self) -> None:
        if not self.name:
            raise Invalid("a group needs a name")
        if not self.nodes or len(set(self.nodes)) != len(self.nodes):
            raise Invalid(f"group {self.name!r}: nodes must be distinct names, at least one, not {self.nodes!r}")
        if self.capacity_bytes is not None and self.capacity_bytes <= 0:
            raise Invalid(
                f"group {self.name!r}: capacity_bytes must be > 0, or left out where unknown, not {self.capacity_bytes}"
            )
        if self.retries < 0:
            raise Invalid(f"group {self.name!r}: retries must be >= 0, not {self.retries}")
        for key in ("lease_ttl_us", "max_hold_us", "max_phase_us", "move_timeout_us"):
            value = getattr(self, key)
            if value is not None and value <= 0:
                raise Invalid(f"group {self.name!r}: {key} must be > 0, not {value}")


class Job(Struct, frozen=True, forbid_unknown_fields=True):
    """One training run.

    `state_bytes` (per group, per node) is what stays between turns, `turn_bytes` what is needed on top of it during
    a turn. A group that is missing from `state_bytes` has unknown size there: the job then shares it with nobody.
    `owner` defaults to the job's own name. `work_us` is the device time that the whole job is expected to take.
    `attended`: worker processes have moved its states, and are expected back after a restart of their scheduler.
    """

    name: str
    owner: str = ""
    weight: float = 1.0
    state_bytes: Mapping[str, int] = field(default_factory=dict)
    turn_bytes: Mapping[str, int] = field(default_factory=dict)
    work_us: int | None = None
    attended: bool = False

    def __post_init__(self) -> None:
        if not self.name:
            raise Invalid("a job needs a name")
        if not 0 < self.weight <= MAX_WEIGHT:
            raise Invalid(f"job {self.name!r}: weight must be a finite number > 0, at most 1e9, not {self.weight!r}")
        for key in ("state_bytes", "turn_bytes"):
            for group, size in getattr(self, key).items():
                if size < 0:
                    raise Invalid(f"job {self.name!r}: {key} on group {group!r} must be >= 0, not {size}")

    @property
    def weight_milli(self) -> int:
        """The weight in thousandths, at least one: what policies count with."""
        return max(1, round(self.weight * 1000))

    @property
    def account(self) -> str:
        """Who is charged for this job's turns."""
        return self.owner or self.name
