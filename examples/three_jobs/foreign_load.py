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
    """Counts from when it was made."""

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
    """Processor seconds of this process and all that come from it; those of one that ended are with its parent."""
    seen = {int(path.name): _times(path) for path in Path("/proc").iterdir() if path.name.isdigit()}
    parents = {pid: parent for pid, (parent, _) in seen.items()}
    return sum(ticks for pid, (_, ticks) in seen.items() if _descends(pid, os.getpid(), parents)) / TICKS


def _times(path: Path) -> tuple[int, int]:
    """A process's parent, and the ticks that it and its children which have ended used; nothing where it is gone."""
    try:
        fields = (path / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0, 0
    return int(fields[1]), sum(map(int, fields[11:15]))


def _descends(pid: int, ancestor: int, parents: dict[int, int]) -> bool:
    while pid and pid != ancestor:
        pid = parents.get(pid, 0)
    return pid == ancestor
