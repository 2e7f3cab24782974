"""A backend whose jobs park themselves, told so over the workload channel.

Nothing but their word says what is in memory. It needs asyncio, and orders wait in threads of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from tsched.agent.state_file import Place
from tsched.agent.workloads import Mode, Workloads
from tsched.backends import Order, Presence, Sizes
from tsched.backends.orders import OrderBook
from tsched.errors import BackendError
from tsched.llmd import agent_pb2 as pb

_UNKNOWN_BYTES = 1


@dataclass(slots=True, eq=False)
class Asleep:
    """What the jobs of the channel last said, and the orders that they were given."""

    workloads: Workloads
    timeout_s: float
    book: OrderBook = field(default_factory=OrderBook)
    parked: dict[Place, bool] = field(default_factory=dict)

    def knows(self, group: str, job: str) -> bool:
        """Whether the job is moved over the channel: it is there now, or was when it was parked."""
        if any(self.parked.get(place) for place in self.parked if (place[0], place[2]) == (group, job)):
            return True
        workload = self.workloads.find(job)
        return workload is not None and workload.group in (group, "")


class ChannelMover:
    """Moves the states of workloads, in the mode and for the tags that were asked for, else in those they prefer."""

    suspendable = False

    def __init__(self, asleep: Asleep, mode: Mode = pb.SUSPEND_MODE_UNSPECIFIED, tags: tuple[str, ...] = ()) -> None:
        self._asleep, self._mode, self._tags = asleep, mode, tags

    async def park(self, order: Order) -> None:
        loop = asyncio.get_running_loop()
        await self._asleep.book.obey("park", order, lambda: self._in(loop, lambda: self._park(order)))

    async def restore(self, order: Order) -> None:
        loop = asyncio.get_running_loop()
        await self._asleep.book.obey("restore", order, lambda: self._in(loop, lambda: self._restore(order)))

    async def discard(self, order: Order) -> None:
        """The workload drops what it has, if it can; its process is left to whoever started it."""
        loop = asyncio.get_running_loop()
        await self._asleep.book.obey(
            "discard", order, lambda: self._in(loop, lambda: self._discard(order)), first=self._interrupt(loop, order)
        )

    async def probe(self, group: str, node: str, job: str, *, deadline_us: int) -> Presence:
        await self._asleep.book.settle(group, node, job, deadline_us=deadline_us)
        parked = self._asleep.parked.get((group, node, job))
        if parked is None and self._asleep.workloads.find(job) is None:
            return Presence()
        return Presence(0, _UNKNOWN_BYTES) if parked else Presence(_UNKNOWN_BYTES, 0)

    async def sizes(self, group: str, node: str, job: str) -> Sizes:
        return Sizes(0)

    def _in(self, loop: asyncio.AbstractEventLoop, work: Callable[[], object]) -> None:
        asyncio.run_coroutine_threadsafe(work(), loop).result()  # type: ignore[arg-type]

    async def _park(self, order: Order) -> None:
        place = order.group, order.node, order.job
        if self._asleep.parked.get(place):
            return
        workload = self._asleep.workloads.of(order.job)
        command = pb.SnapshotCommand(mode=workload.mode(self._mode), tags=self._tags)
        await workload.obey(pb.AgentCommand(snapshot=command), self._asleep.timeout_s)
        self._asleep.parked[place] = True

    async def _restore(self, order: Order) -> None:
        place = order.group, order.node, order.job
        workload = self._asleep.workloads.of(order.job)
        if self._asleep.parked.get(place) is False:
            return
        command = pb.AgentCommand(restore=pb.RestoreCommand(tags=self._tags))
        await workload.obey(command, self._asleep.timeout_s)
        self._asleep.parked[place] = False

    async def _discard(self, order: Order) -> None:
        workload = self._asleep.workloads.find(order.job)
        if workload is not None:
            try:
                mode = workload.mode(pb.SUSPEND_MODE_DISCARD)
            except BackendError as error:
                raise BackendError(f"{error}; end its process, or register it, so that it can be ended") from None
            command = pb.AgentCommand(snapshot=pb.SnapshotCommand(mode=mode))
            await workload.obey(command, self._asleep.timeout_s)
            workload.end(f"job {order.job!r} was discarded")
        self._asleep.parked.pop((order.group, order.node, order.job), None)

    def _interrupt(self, loop: asyncio.AbstractEventLoop, order: Order) -> Callable[[], None]:
        """A command that is not answered must not keep the end from coming."""

        def interrupt() -> None:
            workload = self._asleep.workloads.find(order.job)
            if workload is not None and workload.busy:
                loop.call_soon_threadsafe(workload.end, f"job {order.job!r} is discarded")

        return interrupt
