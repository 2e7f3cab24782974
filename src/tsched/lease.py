"""A turn in its holder's hands: the handle that `acquire` returns and `hold` yields."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Protocol

import anyio

from tsched.commands import Grant
from tsched.errors import Invalid


class Keeper(Protocol):
    """What a lease asks of the scheduler that gave it."""

    async def renew(self, lease: Lease) -> None: ...

    async def release(self, lease: Lease, groups: str | tuple[str, ...] = ()) -> None: ...


class Lease:
    """Exclusive use of one or several groups, until it is released or lost.

    `id` names the lease, and `client` and `request` the request that it answers: after a restart of the scheduler,
    acquiring with the same two attaches to it again. `waited_s` is the time from request to grant, restoring
    included; `restored` says whether state had to be brought back for it. `on_change` is called, and must not wait,
    whenever the lease is suspended, goes on, or is lost.
    """

    __slots__ = (
        "_keeper",
        "_lost",
        "_resumed",
        "_tokens",
        "client",
        "id",
        "job",
        "lost_reason",
        "on_change",
        "phase",
        "request",
        "restored",
        "suspended",
        "waited_s",
    )

    def __init__(self, grant: Grant, keeper: Keeper) -> None:
        self.id = grant.lease
        self.job = grant.job
        self.phase = grant.phase
        self.client = grant.client
        self.request = grant.request
        self.waited_s = grant.waited_us / 1_000_000
        self.restored = grant.restored
        self.suspended = False
        self.lost_reason: str | None = None
        self.on_change: Callable[[], None] | None = None
        self._tokens = dict(grant.tokens)
        self._keeper = keeper
        self._lost: anyio.Event | None = None
        self._resumed: anyio.Event | None = None

    def __repr__(self) -> str:
        state = f"lost: {self.lost_reason}" if self.lost_reason is not None else ", ".join(self._tokens) or "released"
        return f"<Lease {self.id} of job {self.job!r}: {state}>"

    @property
    def tokens(self) -> Mapping[str, int]:
        """The fencing token of each group that is still held. A later lease of the group has a larger one."""
        return MappingProxyType(self._tokens)

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups that are still held; none once it is released or lost."""
        return tuple(self._tokens)

    @property
    def token(self) -> int:
        """The fencing token, where exactly one group is held."""
        if len(self._tokens) != 1:
            raise Invalid(f"lease {self.id} of job {self.job!r} holds {len(self._tokens)} groups: take one of `tokens`")
        return next(iter(self._tokens.values()))

    @property
    def held(self) -> bool:
        """Whether the lease still holds every group that was not given back."""
        return self.lost_reason is None and bool(self._tokens)

    @property
    def lost(self) -> anyio.Event:
        """Set when the lease ends, on any of its groups, before its holder released it; `lost_reason` says why."""
        if self._lost is None:
            self._lost = anyio.Event()
            if self.lost_reason is not None:
                self._lost.set()
        return self._lost

    async def resumed(self) -> None:
        """Wait until the turn goes on, where it is `suspended`, with new `tokens`; or until it is lost."""
        while self.suspended and self.lost_reason is None:
            if self._resumed is None:
                self._resumed = anyio.Event()
            await self._resumed.wait()

    async def renew(self) -> None:
        """Say that the holder is alive: the lease's time to live starts anew.

        Raises:
            LeaseLost: it has ended.
        """
        await self._keeper.renew(self)

    async def release(self, *groups: str) -> None:
        """Give back `groups`, or all; as `Scheduler.release`."""
        await self._keeper.release(self, groups)

    # ------------------------------------------------- for the scheduler alone

    def give_back(self, groups: tuple[str, ...]) -> None:
        for name in groups or tuple(self._tokens):
            self._tokens.pop(name, None)

    def suspend(self) -> None:
        self.suspended = True
        self._changed()

    def grant_again(self, grant: Grant) -> None:
        self._tokens = dict(grant.tokens)
        if self.suspended:
            self.suspended = False
            self._changed()

    def lose(self, groups: tuple[str, ...], reason: str) -> None:
        """The lease ended on `groups` (on all, when empty) against the holder's will."""
        self.give_back(groups)
        if self.lost_reason is None:
            self.lost_reason = reason
        if self._lost is not None:
            self._lost.set()
        self._changed()

    def _changed(self) -> None:
        if self._resumed is not None:
            self._resumed.set()
            self._resumed = None
        if self.on_change is not None:
            self.on_change()
