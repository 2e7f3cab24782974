"""How much is taken before the answer is RESOURCE_EXHAUSTED; every text names the limit that was reached."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import grpc

from tsched.orchestrator.access import Caller, Refusal
from tsched.orchestrator.config import Limits as Configured
from tsched.scheduler import Scheduler

BURST_S = 2.0
MAX_BUCKETS = 4096


class Limits:
    """Counts what is open, and each owner's calls.

    Args:
        clock: seconds, monotonic.
    """

    def __init__(self, limits: Configured, scheduler: Scheduler, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits, self._scheduler, self._clock = limits, scheduler, clock
        self._open = 0
        self._buckets: dict[str, tuple[float, float]] = {}

    def enter(self) -> None:
        """A call or stream opens; raises `Refusal` where too many are open. Pair it with `leave`."""
        if self._open >= self._limits.clients:
            raise _exhausted(f"clients = {self._limits.clients}: so many calls are open already; try again later")
        self._open += 1

    def leave(self) -> None:
        """It has ended."""
        self._open -= 1

    @contextmanager
    def open(self) -> Iterator[None]:
        """One call, from `enter` to `leave`."""
        self.enter()
        try:
            yield
        finally:
            self.leave()

    def spend(self, caller: Caller) -> None:
        """One more call of this owner's; raises `Refusal` where they come too fast."""
        rate = self._limits.per_owner_requests_per_s
        if not rate or caller.role == "operator":
            return
        now, most = self._clock(), max(1.0, rate * BURST_S)
        left, since = self._buckets.get(caller.owner, (most, now))
        left = min(most, left + (now - since) * rate)
        if left < 1:
            wait_s = (1 - left) / rate
            raise _exhausted(
                f"per_owner_requests_per_s = {rate:g}: owner {caller.owner!r} calls too often; "
                f"try again in {wait_s:.3g} s"
            )
        self._buckets[caller.owner] = left - 1, now
        if len(self._buckets) > MAX_BUCKETS:
            self._buckets = {o: b for o, b in self._buckets.items() if b[0] + (now - b[1]) * rate < most}

    def check_queue(self) -> None:
        """Raises `Refusal` where no further request may wait."""
        if self._scheduler.waiting() >= self._limits.queue:
            raise _exhausted(f"queue = {self._limits.queue}: so many requests wait already; try again later")

    def check_jobs(self) -> None:
        """Raises `Refusal` where no further job may be registered."""
        if len(self._scheduler.jobs) >= self._limits.jobs:
            raise _exhausted(f"jobs = {self._limits.jobs}: so many are registered already; remove one")


def _exhausted(detail: str) -> Refusal:
    return Refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, f"limits.{detail}")
