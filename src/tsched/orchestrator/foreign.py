"""Agents that speak llm-d's protocol alone: no tokens, no discard, and nothing to wait on, so that they are polled.

What the protocol cannot do: an agent cannot refuse another orchestrator's stale order (tokens are compared here, for
this one's own orders), cannot end a process (a discard waits a little for the process to end by itself), tells no
kinds of failures, and does not say whether a job's process lives.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

from tsched.backends import Order, Presence, Sizes
from tsched.costs import MoveKind
from tsched.errors import BackendError, StaleToken
from tsched.llmd import agent_pb2 as pb
from tsched.model import SECOND_US
from tsched.orchestrator.agent_link import AgentLink, NotKnown, Unreachable
from tsched.orchestrator.foreign_calls import ForeignCalls
from tsched.rpc.v1 import agent_pb2 as agent

MIN_PAUSE_S, MAX_PAUSE_S = 0.02, 0.5
END_S = 5.0
ATTEMPTS = 5

Key = tuple[str, str, str]


@dataclass(slots=True, eq=False)
class Place:
    """One job's state on one node: the newest token, what its orders came to, and its last known sizes."""

    token: int = 0
    orders: dict[int, asyncio.Task[None]] = field(default_factory=dict)
    last: asyncio.Task[None] | None = None
    stored_bytes: int = 0
    device_bytes: int = 0


class Foreign:
    """Drives one such agent, as a backend."""

    suspendable = True

    def __init__(self, link: AgentLink) -> None:
        self._link, self._calls = link, ForeignCalls(link)
        self._places: dict[Key, Place] = {}

    async def close(self) -> None:
        """Nothing is asked any more; what the agent does goes on."""
        asking = [place.last for place in self._places.values() if place.last is not None]
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)

    async def describe(self, timeout_s: float) -> agent.Description:
        """What the agent's status says; raises `BackendError` where it does not answer."""
        said = await self._calls.status(timeout_s)
        return agent.Description(
            version=0,
            jobs=[agent.AgentJob(job=each.job_id) for each in said.job_statuses],
            devices=[
                agent.Device(id=each.id, used_bytes=each.memory_used_bytes, total_bytes=each.memory_total_bytes)
                for each in said.accelerator_statuses
            ],
        )

    async def park(self, order: Order) -> None:
        await self._obey("park", order)

    async def restore(self, order: Order) -> None:
        await self._obey("restore", order)

    async def discard(self, order: Order) -> None:
        await self._obey("discard", order)

    async def probe(self, group: str, node: str, job: str, *, deadline_us: int) -> Presence:
        place = self._place(group, node, job)
        state = await self._settled(job, deadline_us / SECOND_US)
        if state == pb.JOB_STATE_SAVED:
            return Presence(0, place.stored_bytes or 1)
        if state in (pb.JOB_STATE_IDLE, None):
            return Presence()
        return Presence(place.device_bytes or 1, 0)

    async def sizes(self, group: str, node: str, job: str) -> Sizes:
        return Sizes(save_bytes=self._place(group, node, job).stored_bytes)

    # ---------------------------------------------------------------- orders

    async def _obey(self, kind: MoveKind, order: Order) -> None:
        """Once, and in the order of tokens; a newer order takes the place of one that is under way."""
        place = self._place(order.group, order.node, order.job)
        if order.token < place.token:
            raise StaleToken(
                f"{kind} of job {order.job!r} on {order.group}/{order.node}: token {order.token} is stale, "
                f"{place.token} was seen"
            )
        if order.token > place.token:
            place.token = order.token
            place.orders.clear()
        task = place.orders.get(order.op)
        if task is None:
            task = self._begin(place, order, self._carry_out(kind, order, place))
        await _outcome(task, kind, order)

    def _begin(self, place: Place, order: Order, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        if place.last is not None:
            place.last.cancel()
        task = place.orders[order.op] = place.last = asyncio.ensure_future(work)
        task.add_done_callback(_heard)
        return task

    async def _carry_out(self, kind: MoveKind, order: Order, place: Place) -> None:
        if kind == "discard":
            await self._see_it_end(order)
            return
        goal = pb.JOB_STATE_SAVED if kind == "park" else pb.JOB_STATE_RUNNING
        for _ in range(ATTEMPTS):
            if await self._settled(order.job, None) == goal:
                return
            try:
                operation = await self._calls.begin(kind, order)
            except Unreachable:  # it may have been heard all the same: the status tells
                await asyncio.sleep(MAX_PAUSE_S)
                continue
            if await self._ends(operation, kind, order, place):
                return
        raise BackendError(f"{self._link} does not keep operations: {kind} of job {order.job!r} was begun {ATTEMPTS} x")

    async def _ends(self, operation: str, kind: MoveKind, order: Order, place: Place) -> bool:
        """Wait for the end of an operation; false where the agent does not know it, having been started anew."""
        pause_s = MIN_PAUSE_S
        while True:
            try:
                said = await self._calls.operation(operation)
            except NotKnown:
                return False
            if said is not None and said.status == pb.OPERATION_STATUS_COMPLETE:
                if kind == "park":
                    place.stored_bytes, place.device_bytes = said.storage_bytes, said.snapshot_device_bytes
                return True
            if said is not None and said.status == pb.OPERATION_STATUS_FAILED:
                raise BackendError(f"{kind} of job {order.job!r}: {said.error or f'{self._link} does not say why'}")
            if said is not None and said.status != pb.OPERATION_STATUS_PENDING:
                raise BackendError(f"{self._link} answers nonsense: an operation of status {said.status}")
            await asyncio.sleep(pause_s)
            pause_s = min(1.5 * pause_s, MAX_PAUSE_S)

    async def _see_it_end(self, order: Order) -> None:
        """The protocol cannot end a process."""
        until = asyncio.get_running_loop().time() + END_S
        while (await self._settled(order.job, None)) not in (pb.JOB_STATE_IDLE, None):
            if asyncio.get_running_loop().time() > until:
                raise BackendError(
                    f"{self._link} speaks llm-d's protocol, which cannot end a process: end those of job "
                    f"{order.job!r}, or vouch for it with `tsched evict`"
                )
            await asyncio.sleep(MAX_PAUSE_S)

    # ---------------------------------------------------------------- status

    async def _settled(self, job: str, within_s: float | None) -> int | None:
        """The job's state once nothing is under way there, or when the time is over; None where it is not known.

        Raises:
            BackendError: the agent did not answer in that time. Without a limit it is waited for.
        """
        clock = asyncio.get_running_loop()
        until = None if within_s is None else clock.time() + within_s
        pause_s = MIN_PAUSE_S
        while True:
            left_s = None if until is None else max(0.0, until - clock.time())
            try:
                state = await self._calls.state(job)
            except Unreachable:
                if left_s == 0:
                    raise
                state = pb.JOB_STATE_TRANSITIONING
            if state != pb.JOB_STATE_TRANSITIONING or left_s == 0:
                return state
            await asyncio.sleep(pause_s if left_s is None else min(pause_s, left_s))
            pause_s = min(1.5 * pause_s, MAX_PAUSE_S)

    def _place(self, group: str, node: str, job: str) -> Place:
        return self._places.setdefault((group, node, job), Place())


async def _outcome(task: asyncio.Task[None], kind: MoveKind, order: Order) -> None:
    """Wait for it, without ending it when the caller gives up."""
    await asyncio.wait([task])
    if task.cancelled():
        raise BackendError(f"{kind} of job {order.job!r} was superseded by a newer order")
    error = task.exception()
    if error is not None:
        raise error if not isinstance(error, BackendError) else type(error)(*error.args)


def _heard(task: asyncio.Task[None]) -> None:
    """A failure that nobody waits for any more is no news."""
    if not task.cancelled():
        task.exception()
