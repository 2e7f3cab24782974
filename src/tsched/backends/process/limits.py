"""How long each step may take, so that none blocks for ever."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import asdict

from tsched.errors import Invalid


class Limits(Struct, frozen=True, kw_only=True):
    """Seconds for one step of one process; the processes of a job take each step together.

    `lock_s` is also what the driver is told: how long a process may take to come to a point where it can be held.
    """

    lock_s: float = 10.0
    checkpoint_s: float = 300.0
    restore_s: float = 300.0
    unlock_s: float = 10.0
    freeze_s: float = 10.0
    kill_s: float = 30.0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not value > 0:
                raise Invalid(f"process backend: {name} must be more than 0 seconds, not {value}")
