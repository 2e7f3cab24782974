"""A turn in the hands of a worker process."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from types import MappingProxyType

from tsched.rpc.v1 import worker_pb2 as pb


class WorkerLease:
    """Exclusive use of one group or several, until it is released or lost. May be read from any thread.

    `id`, `client` and `request` name it; `waited_s` is the time from request to grant, restoring included; `restored`
    says whether state had to be brought back for it; `ttl_s` how soon it ends unless it is renewed, which the worker
    does by itself.
    """

    def __init__(self, grant: pb.Grant, job: str, client: str, request: int) -> None:
        self.id = int(grant.lease)
        self.job, self.client, self.request = job, client, request
        self.phase = grant.phase
        self.waited_s, self.restored = grant.waited_s, grant.restored
        self.ttl_s = grant.ttl_s if grant.HasField("ttl_s") else None
        self.lost_reason: str | None = None
        self._tokens: dict[str, int] = dict(grant.tokens)
        self.claims = 0
        self._changed = threading.Condition()
        self._suspended = False

    def __repr__(self) -> str:
        state = f"lost: {self.lost_reason}" if self.lost_reason is not None else ", ".join(self.groups) or "released"
        return f"<WorkerLease {self.id} of job {self.job!r}: {state}>"

    @property
    def tokens(self) -> Mapping[str, int]:
        """The fencing token of each group that is still held."""
        return MappingProxyType(self._tokens)

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups that are still held; none once it is released or lost."""
        return tuple(self._tokens)

    @property
    def suspended(self) -> bool:
        """Whether the turn is interrupted; it goes on by itself, with new tokens."""
        return self._suspended

    @property
    def held(self) -> bool:
        """Whether the lease still holds every group that was not given back."""
        return self.lost_reason is None and bool(self._tokens)

    def resumed(self, timeout_s: float | None = None) -> bool:
        """Wait until the turn goes on, where it is suspended, or is lost; false if neither came in time."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._suspended or self.lost_reason is not None, timeout_s)

    # ----------------------------------------------------- for the worker alone

    def change(self, change: pb.LeaseChanged) -> None:
        with self._changed:
            self._suspended = change.suspended
            if change.HasField("lost"):
                self._lose(change.lost, dict(change.tokens))
            elif self.lost_reason is None:
                self._tokens = {name: token for name, token in change.tokens.items() if name in self._tokens}
            self._changed.notify_all()

    def lose(self, reason: str) -> None:
        with self._changed:
            self._lose(reason, {})
            self._changed.notify_all()

    def unclaim(self) -> bool:
        """A call that it answered was given up; true where no other one has it."""
        self.claims -= 1
        return self.claims <= 0

    def give_back(self, groups: tuple[str, ...]) -> None:
        with self._changed:
            self._tokens = {name: token for name, token in self._tokens.items() if groups and name not in groups}

    def _lose(self, reason: str, left: dict[str, int]) -> None:
        self._tokens = left
        if self.lost_reason is None:
            self.lost_reason = reason
