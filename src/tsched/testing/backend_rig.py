"""What the backend's contract suite works with: a backend with jobs on it, and a watch that compares and complains."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable
from typing import Protocol, TypeVar

import anyio

from tsched.backends import Backend, Order, Presence
from tsched.backends.moves import give
from tsched.costs import MoveKind
from tsched.errors import BackendError
from tsched.model import SECOND_US

T = TypeVar("T")


class ContractViolation(AssertionError):
    """The backend broke a rule of its contract; `rule` is its name in `tsched.backends`."""

    def __init__(self, rule: str, detail: str) -> None:
        super().__init__(rule, detail)
        self.rule = rule
        self.detail = detail

    def __str__(self) -> str:
        return f"rule {self.rule!r} is broken: {self.detail}"


class Rig(Backend, Protocol):
    """A backend with jobs on it; each of these may be a coroutine function as well."""

    def allocate(self, group: str, node: str, job: str, size_bytes: int) -> Awaitable[None] | None:
        """Start the job, with a state of this size on the device; raises `BackendError` where it has no room."""
        ...

    def work(self, group: str, node: str, job: str) -> Awaitable[None] | None:
        """Let the job change its state."""
        ...

    def contents(self, group: str, node: str, job: str) -> Awaitable[bytes] | bytes:
        """The state as the job reads it on the device; raises `BackendError` where it is not there."""
        ...

    def kill(self, group: str, node: str, job: str) -> Awaitable[None] | None:
        """Let the job's process die."""
        ...


class Watch:
    """Gives orders to one rig and compares what it sees with what the rule says."""

    def __init__(
        self,
        rule: str,
        rig: Rig,
        group: str,
        node: str,
        size_bytes: int,
        capacity_bytes: int | None,
        host_bytes: int | None,
        timeout_us: int,
        grace_us: int,
    ) -> None:
        self.rule, self.rig, self.group, self.node = rule, rig, group, node
        self.size_bytes, self.capacity_bytes, self.host_bytes = size_bytes, capacity_bytes, host_bytes
        self.timeout_us, self.grace_us = timeout_us, grace_us
        self._ops = 0

    def expect(self, condition: bool, detail: str) -> None:
        if not condition:
            raise ContractViolation(self.rule, detail)

    def order(self, job: str, *, token: int = 1, op: int | None = None, size_bytes: int | None = None) -> Order:
        """A new order, or with `op` one that was given before."""
        self._ops += op is None
        size = self.size_bytes if size_bytes is None else size_bytes
        return Order(self._ops if op is None else op, self.group, self.node, job, token, size)

    async def done(self, kind: MoveKind, order: Order) -> Presence:
        """The order is obeyed and its effect waited for."""
        try:
            with anyio.fail_after(self.timeout_us / SECOND_US):
                await give(self.rig, kind, order)
        except BackendError as error:
            raise ContractViolation(self.rule, f"{kind} of a healthy job was refused: {error}") from error
        except TimeoutError as error:
            raise ContractViolation(self.rule, f"{kind} did not return in {self.timeout_us} us") from error
        return await self.probe(order.job)

    async def refused(self, kind: MoveKind, order: Order, error: type[BackendError], why: str) -> None:
        """The order is refused, with this error and no other."""
        try:
            with anyio.fail_after(self.timeout_us / SECOND_US):
                await give(self.rig, kind, order)
        except error:
            return
        except BackendError as other:
            raise ContractViolation(self.rule, f"{kind} {why} raised {other!r}, not {error.__name__}") from other
        except TimeoutError as late:
            raise ContractViolation(self.rule, f"{kind} {why} did not return in {self.timeout_us} us") from late
        self.expect(False, f"{kind} {why} was obeyed; {error.__name__} would be right")

    async def probe(self, job: str, deadline_us: int | None = None) -> Presence:
        """What the backend says is there, which it must say in time."""
        deadline_us = self.timeout_us if deadline_us is None else deadline_us
        try:
            with anyio.fail_after((deadline_us + self.grace_us) / SECOND_US):
                return await self.rig.probe(self.group, self.node, job, deadline_us=deadline_us)
        except TimeoutError as error:
            raise ContractViolation(self.rule, f"probe did not answer within its {deadline_us} us") from error

    async def start(self, job: str, size_bytes: int | None = None) -> bytes:
        """A job with its state on the device, and what that state is."""
        try:
            await value_of(self.rig.allocate(self.group, self.node, job, size_bytes or self.size_bytes))
            await value_of(self.rig.work(self.group, self.node, job))
        except BackendError as error:
            raise ContractViolation(self.rule, f"memory that should be free is not: {error}") from error
        return await self.contents(job)

    async def work(self, job: str) -> bytes:
        await value_of(self.rig.work(self.group, self.node, job))
        return await self.contents(job)

    async def contents(self, job: str) -> bytes:
        try:
            return await value_of(self.rig.contents(self.group, self.node, job))
        except BackendError as error:
            raise ContractViolation(self.rule, f"the state of job {job!r} is not on the device: {error}") from error

    async def kill(self, job: str) -> None:
        await value_of(self.rig.kill(self.group, self.node, job))

    async def expect_resident(self, job: str, contents: bytes, when: str) -> None:
        seen = await self.probe(job)
        self.expect(seen.resident_bytes > 0 and not seen.parked_bytes, f"{when}, probe says {seen}: not resident")
        self.expect(await self.contents(job) == contents, f"{when}, the state of job {job!r} has other bytes")

    async def expect_parked(self, job: str, when: str) -> None:
        seen = await self.probe(job)
        self.expect(seen.parked_bytes > 0 and not seen.resident_bytes, f"{when}, probe says {seen}: not parked")


async def value_of(value: Awaitable[T] | T) -> T:
    """What a plain or a coroutine function returned."""
    return await value if inspect.isawaitable(value) else value
