"""What became of each step, as a table, as one JSON object, and as an exit status."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TypeAlias

from tsched.errors import MissingDriver, MissingExtra

Figures: TypeAlias = dict[str, object]


class Status(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    IMPOSSIBLE = "impossible"


class Failed(Exception):
    """The step was carried out, and something is not as it must be."""


class Impossible(Exception):
    """This machine does not allow the step; the text says why."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One step's; `reason` is empty where it passed."""

    step: str
    status: Status
    reason: str = ""
    seconds: float = 0.0
    figures: Mapping[str, object] = field(default_factory=dict)


def status_of(error: BaseException) -> Status:
    """A driver or package that is missing or too old makes a step impossible; whatever else is raised, failed."""
    return Status.IMPOSSIBLE if isinstance(error, Impossible | MissingDriver | MissingExtra) else Status.FAILED


def exit_status(outcomes: Sequence[Outcome]) -> int:
    """0 where every step that was possible passed."""
    return int(any(outcome.status is Status.FAILED for outcome in outcomes))


def as_object(machine: Mapping[str, object], outcomes: Sequence[Outcome]) -> dict[str, object]:
    return {
        "machine": dict(machine),
        "passed": not exit_status(outcomes),
        "steps": {outcome.step: asdict(outcome) for outcome in outcomes},
    }


def as_table(machine: Mapping[str, object], outcomes: Sequence[Outcome]) -> str:
    """A line for each step and, indented, one for each figure."""
    lines = [", ".join(f"{name} {value}" for name, value in machine.items())]
    for outcome in outcomes:
        lines.append(f"{outcome.status:<10} {outcome.step:<24} {outcome.seconds:6.1f} s")
        if outcome.reason:
            lines.append(f"           {outcome.reason}")
        lines += [f"           {name:<40} {_plain(value)}" for name, value in outcome.figures.items()]
    return "\n".join(lines)


def _plain(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)
