"""The worker channel's gate: whose worker it is that says Hello, and how much it may ask.

What a worker says of its job must be true of its caller: the job is of the same owner, and so is a client id.
"""

from __future__ import annotations

import grpc

from tsched.errors import Invalid
from tsched.orchestrator.access import Access, Caller, Refusal
from tsched.orchestrator.limits import Limits
from tsched.orchestrator.line import CLIENT
from tsched.rpc.gate import Context
from tsched.rpc.stream import Refused
from tsched.rpc.v1 import worker_pb2 as pb
from tsched.scheduler import Scheduler


class Entrance:
    """Lets workers in."""

    def __init__(self, scheduler: Scheduler, access: Access, limits: Limits) -> None:
        self._scheduler, self._access, self._limits = scheduler, access, limits

    def __call__(self, context: Context) -> Visitor:
        try:
            caller = self._access.caller(context)
            caller.check_may_change()
            self._limits.enter()
        except Refusal as refusal:
            raise Refused(refusal.status, refusal) from None
        return Visitor(caller, self._scheduler, self._limits)


class Visitor:
    """A worker's stream, for the caller who opened it."""

    def __init__(self, caller: Caller, scheduler: Scheduler, limits: Limits) -> None:
        self._caller, self._scheduler, self._limits = caller, scheduler, limits

    def greet(self, hello: pb.Hello) -> None:
        """The owner is the caller's, and the job is that owner's."""
        if hello.client.startswith(CLIENT):
            raise Invalid(f"client id {hello.client!r}: those that begin with {CLIENT!r} are taken; choose another")
        try:
            self._check(hello)
        except Refusal as refusal:
            raise Refused(refusal.status, refusal) from None

    def _check(self, hello: pb.Hello) -> None:
        caller, job = self._caller, self._scheduler.jobs.get(hello.job)
        if caller.role == "job" and caller.known:
            if hello.owner not in ("", caller.owner):
                raise Refusal(
                    grpc.StatusCode.PERMISSION_DENIED, f"owner {hello.owner!r} is not {caller.owner!r}, who calls"
                )
            hello.owner = caller.owner
        caller.check_owns(hello.job, job)
        if job is None:
            self._limits.check_jobs()

    def ask(self) -> None:
        """A new request comes."""
        self._limits.spend(self._caller)
        self._limits.check_queue()

    def leave(self) -> None:
        """The stream has ended."""
        self._limits.leave()
