"""When a job's next turn would come, told by the simulator on a copy of the live state.

It runs in a process of its own, one question at a time, and is ended where it takes too long: whoever asks never
delays a grant.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import anyio
import anyio.to_process
import grpc

from tsched.errors import MissingExtra
from tsched.model import Group
from tsched.orchestrator.access import Refusal

LIMIT_S = 10.0
# Who may wait for an answer that somebody else's question delays.
LINE = 8


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked: for a job that waits its own request, else as if it asked now for `groups`."""

    snapshot: Mapping[str, Any]
    policy: str
    groups: tuple[Group, ...]
    job: str
    groups_wanted: tuple[str, ...]
    work_us: int | None
    now_us: int


@dataclass(frozen=True, slots=True)
class Answer:
    """Times are the engine's; None for what cannot be told, and `because` says why."""

    next_turn_us: int | None
    finished_us: int | None
    turns_before: int
    because: str


class Forecaster:
    """Answers questions, one at a time.

    Args:
        limit_s: how long one may take.
    """

    def __init__(self, *, limit_s: float = LIMIT_S) -> None:
        self._limit_s = limit_s
        self._limiter = anyio.CapacityLimiter(1)
        self._asked = 0

    async def answer(self, question: Question) -> Answer:
        """Raises `Refusal` where too many ask, or it takes too long; and what the simulator raises."""
        if self._asked >= LINE:
            raise Refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{LINE} forecasts are asked for already: try again")
        self._asked += 1
        try:
            with anyio.fail_after(self._limit_s):
                return await anyio.to_process.run_sync(foretell, question, cancellable=True, limiter=self._limiter)
        except TimeoutError:
            raise Refusal(
                grpc.StatusCode.DEADLINE_EXCEEDED, f"no forecast within {self._limit_s:g} s: ask again, or for less"
            ) from None
        finally:
            self._asked -= 1


def foretell(question: Question) -> Answer:
    """The simulator's answer."""
    try:
        forecast = import_module("tsched.sim.forecast").forecast
    except ModuleNotFoundError as missing:
        raise MissingExtra("this tsched cannot forecast: install a newer one") from missing
    wanted: Sequence[str] = question.groups_wanted
    found = forecast(
        dict(question.snapshot),
        policy=question.policy,
        groups=question.groups,
        job=question.job,
        groups_wanted=wanted,
        work_us=question.work_us,
        now_us=question.now_us,
    )
    return Answer(found.next_turn_us, found.finished_us, found.turns_before, found.because)
