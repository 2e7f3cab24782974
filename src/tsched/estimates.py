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
    switches: dict[str, list[int]] = field(default_factory=dict)
    served: dict[str, int] = field(default_factory=dict)

    def observe(self, job: str, phase: str, length_us: int) -> None:
        """A phase of this job took so long."""
        self.served[job] = self.served.get(job, 0) + length_us
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

    def observe_switch(self, group: str, length_us: int) -> None:
        """A group stood idle so long to bring in the state of the next job."""
        recent = self.switches.setdefault(group, [])
        recent.append(length_us)
        del recent[:-WINDOW]

    def switch(self, group: str) -> int | None:
        """What a switch on this group costs, as measured; None before the first."""
        recent = self.switches.get(group)
        return median(recent) if recent else None

    def remaining(self, job: str, work_us: int | None) -> int | None:
        """What is left of the work that a job declared in all."""
        return None if work_us is None else max(0, work_us - self.served.get(job, 0))

    def forget(self, job: str) -> None:
        self.own.pop(job, None)
        self.served.pop(job, None)

    def _prior(self, phase: str, declared_us: int | None) -> int:
        if declared_us is not None:
            return declared_us
        everyone = self.everyone.get(phase)
        return median(everyone) if everyone else DEFAULT_US
