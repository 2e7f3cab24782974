"""How long phases take: an online estimate that one slow phase cannot spoil.

Rule E20. The estimate of a (job, phase kind) is the median of its last `WINDOW` lengths. While fewer than `TRUSTED` are
known, a prior counts as one more sample: what the client declared, else the median of all jobs' phases of this
kind, else `DEFAULT_US`. Pure; lengths are integer microseconds.
"""

from __future__ import annotations

from msgspec import Struct, field

WINDOW = 5
TRUSTED = 3
DEFAULT_US = 60_000_000


def median(values: list[int]) -> int:
    """The lower median of a non-empty list: always one of the values, so the result stays an integer."""
    return sorted(values)[(len(values) - 1) // 2]


class Estimates(Struct):
    """The last lengths of every (job, phase kind), and of every phase kind over all jobs."""

    own: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    everyone: dict[str, list[int]] = field(default_factory=dict)

    def observe(self, job: str, phase: str, length_us: int) -> None:
        own = self.own.get(job)
        if own is None:
            own = self.own[job] = {}
        for lengths in (own, self.everyone):
            recent = lengths.get(phase)
            if recent is None:
                lengths[phase] = [length_us]
            else:
                recent.append(length_us)
                if len(recent) > WINDOW:
                    del recent[0]

    def estimate(self, job: str, phase: str, declared_us: int | None = None) -> int:
        """Microseconds that this job's next phase of this kind will take."""
        phases = self.own.get(job)
        own = phases.get(phase) if phases is not None else None
        if own is None:
            return self._prior(phase, declared_us)
        if len(own) >= TRUSTED:
            return median(own)
        return median([*own, self._prior(phase, declared_us)])

    def known(self, job: str, phase: str) -> int | None:
        """The median of what this job really did, or None."""
        own = self.own.get(job, {}).get(phase)
        return median(own) if own else None

    def forget(self, job: str) -> None:
        self.own.pop(job, None)

    def _prior(self, phase: str, declared_us: int | None) -> int:
        if declared_us is not None:
            return declared_us
        everyone = self.everyone.get(phase)
        return median(everyone) if everyone else DEFAULT_US
