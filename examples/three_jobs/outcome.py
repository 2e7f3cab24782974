"""What came of a job: its curves, and a fingerprint of everything that it learned."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class Outcome:
    """One entry a phase of its kind; `fingerprint` is over the final weights and optimizer state, to the last bit."""

    job: str
    imitation_loss: tuple[float, ...]
    policy_loss: tuple[float, ...]
    rewards: tuple[float, ...]
    fingerprint: str

    def differences(self, other: Outcome) -> list[str]:
        """The names of what is not the same, to the last bit."""
        return [each.name for each in fields(self) if getattr(self, each.name) != getattr(other, each.name)]
