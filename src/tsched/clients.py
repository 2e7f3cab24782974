"""Who waits for a turn in this process and who has one: where a grant or a refusal finds the one that asked.

Calls come from clients, commands from the engine; both are synchronous, so that neither sees the other half-way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import anyio

from tsched.commands import Grant, Refuse, Revoke
from tsched.errors import (
    AcquireRefused,
    JobQuarantined,
    LeaseLost,
    NeverFits,
    SchedulerClosed,
    TschedError,
    UnknownGroup,
    UnknownJob,
    WouldDeadlock,
)
from tsched.lease import Keeper, Lease

Key = tuple[str, int]
Failure = Callable[[], Exception]

_LOOKUP: Mapping[str, type[TschedError]] = {"unknown_group": UnknownGroup, "unknown_job": UnknownJob}
_REFUSED: Mapping[str, type[AcquireRefused]] = {
    "never_fits": NeverFits,
    "deadlock": WouldDeadlock,
    "quarantined": JobQuarantined,
}


def as_error(code: str, detail: str) -> TschedError:
    """The typed error for a refusal's code."""
    if code == "lease_lost":
        return LeaseLost(detail)
    if code in _LOOKUP:
        return _LOOKUP[code](detail)
    return _REFUSED.get(code, AcquireRefused)(detail, code)


class Waiter:
    """One request of this process that is not answered yet, and how many callers wait for it."""

    __slots__ = ("_event", "anonymous", "callers", "failure", "lease")

    def __init__(self, anonymous: bool) -> None:
        self.anonymous = anonymous
        self.callers = 0
        self.lease: Lease | None = None
        self.failure: Failure | None = None
        self._event: anyio.Event | None = None

    @property
    def answered(self) -> bool:
        return self.lease is not None or self.failure is not None

    async def wait(self) -> None:
        if self._event is None:
            self._event = anyio.Event()
        await self._event.wait()

    def answer(self, lease: Lease | None, failure: Failure | None = None) -> None:
        self.lease, self.failure = lease, failure
        if self._event is not None:
            self._event.set()


class Clients:
    """All waiters and leases of one scheduler, by request and by lease number."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._waiters: dict[Key, Waiter] = {}
        self._leases: dict[int, Lease] = {}
        self._holding: dict[Key, Lease] = {}

    # ----------------------------------------------------------- from clients

    def enter(self, key: Key, anonymous: bool) -> Waiter:
        """One more caller waits for this request, which may be new."""
        waiter = self._waiters.get(key)
        if waiter is None:
            waiter = self._waiters[key] = Waiter(anonymous)
        waiter.callers += 1
        return waiter

    def leave(self, key: Key, waiter: Waiter) -> bool:
        """A caller gave up; True when the request is nobody's any more: to be withdrawn, or its grant given back."""
        waiter.callers -= 1
        if waiter.callers:
            return False
        if self._waiters.get(key) is waiter:
            del self._waiters[key]
        return waiter.lease is not None or key not in self._holding

    def lease(self, number: int) -> Lease | None:
        return self._leases.get(number)

    def give_back(self, lease: Lease, groups: tuple[str, ...] = ()) -> None:
        lease.give_back(groups)
        self._forget_if_over(lease)

    # -------------------------------------------------------- from the engine

    def granted(self, grant: Grant) -> None:
        key = (grant.client, grant.request)
        lease = self._leases.get(grant.lease)
        if lease is None:
            lease = self._leases[grant.lease] = self._holding[key] = Lease(grant, self._keeper)
        else:
            lease.grant_again(grant)
        waiter = self._waiters.pop(key, None)
        if waiter is not None:
            waiter.answer(lease)

    def refused(self, refusal: Refuse) -> None:
        key = (refusal.client, refusal.request)
        lease = self._holding.get(key)
        if lease is not None:  # its turn was suspended, and will not go on
            self._lose(lease, (), refusal.detail)
        waiter = self._waiters.pop(key, None)
        if waiter is not None:
            waiter.answer(None, lambda: as_error(refusal.code, refusal.detail))

    def revoked(self, revocation: Revoke) -> None:
        lease = self._leases.get(revocation.lease)
        if lease is not None:
            self._lose(lease, revocation.groups, revocation.reason)

    def suspended(self, number: int) -> None:
        lease = self._leases.get(number)
        if lease is not None:
            lease.suspend()

    def close(self, failure: Exception | None = None) -> list[Key]:
        """Nobody is served any more; answers the requests that no client could come back for, having no name."""
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters.values():
            waiter.answer(None, lambda: failure or closed())
        return [key for key, waiter in waiters.items() if waiter.anonymous]

    def _lose(self, lease: Lease, groups: tuple[str, ...], reason: str) -> None:
        lease.lose(groups, reason)
        self._forget_if_over(lease)

    def _forget_if_over(self, lease: Lease) -> None:
        if not lease.groups and self._leases.pop(lease.id, None) is not None:
            self._holding.pop((lease.client, lease.request), None)


def closed() -> SchedulerClosed:
    return SchedulerClosed(
        "the scheduler is closed: make a new one; one with the same journal goes on where this one ended"
    )


def lost(lease: Lease) -> LeaseLost:
    return LeaseLost(f"lease {lease.id} of job {lease.job!r} was lost: {lease.lost_reason}")
