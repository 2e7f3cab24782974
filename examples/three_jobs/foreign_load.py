"""How much of the processors somebody else used while we measured: when it is much, the figures mean little."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
TOO_MUCH = 0.05
_IDLE = (3, 4)  # idle, iowait


@dataclass(frozen=True, slots=True)
class Load:
    """Processor seconds over a stretch of time; `share` is what others used of all that there was."""

    foreign_s: float
    share: float

    @property
    def too_high(self) -> bool:
        return self.share > TOO_MUCH

    def __str__(self) -> str:
        verdict = ", too much to trust the figures" if self.too_high else ""
        return f"others used {self.share * 100:.1f} % of the processors meanwhile{verdict}"


class LoadMeter:
    """Counts from when it was made. Our own processes must have ended, and been waited for, when it is read."""

    def __init__(self) -> None:
        self._cpus = os.sched_getaffinity(0)
        self._began, self._busy, self._own = time.monotonic(), self._busy_s(), own_s()

    def read(self) -> Load:
        """What others used so far."""
        there_was = (time.monotonic() - self._began) * len(self._cpus)
        foreign = max(0.0, self._busy_s() - self._busy - (own_s() - self._own))
        return Load(foreign, foreign / there_was if there_was else 0.0)

    def _busy_s(self) -> float:
        """Processor seconds that were not idle, stolen ones included, on the processors that we may use."""
        ticks = 0
        for line in Path("/proc/stat").read_text().splitlines():
            name, *fields = line.split()
            if name[3:].isdigit() and name.startswith("cpu") and int(name[3:]) in self._cpus:
                ticks += sum(int(value) for at, value in enumerate(fields[:8]) if at not in _IDLE)
        return ticks / TICKS


def own_s() -> float:
    """Processor seconds of this process and of its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
