"""A backend without devices: real byte buffers with checksums, memory that runs out, and faults on demand.

It is shipped for tests, demonstrations and rehearsals, and obeys the same contract as any other backend. Time comes
from anyio's clock alone, so that it runs in virtual time; what a move costs and which fault it meets are functions of
its arguments (`tsched.costs`, `tsched.faults`), so that a simulation which uses the same ones sees the same moves.

A buffer holds at most `buffer_bytes` real bytes, while memory is accounted in declared sizes: a job of 24 GiB is cheap.
The object stands for the devices: it outlives a scheduler that crashes. There are no tasks in the background. A move
under way is a `Move` with the time at which it ends, and whoever looks at that time or later finds it ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import anyio

from tsched.backends import Order, Presence, Sizes
from tsched.backends.fake_memory import Move, Place, contents_of, worked_on
from tsched.costs import FixedTable, MoveKind, SwitchCosts, move_us
from tsched.errors import BackendError, HostMemoryFull, Invalid, StaleToken
from tsched.faults import DIED, LATE_FACTOR, Fault, Faults, finish_us
from tsched.model import SECOND_US, Group

Key = tuple[str, str, str]


class FakeBackend:
    """Serves any groups and nodes. Besides the orders of a scheduler it has what a job does to its own state.

    A park of a job that was never allocated here takes `order.size_bytes` to be its state and moves that, so that a
    scheduler can run on it without jobs.

    Args:
        costs: how long moves take; nothing by default.
        faults: which node-calls go wrong; none by default.
        capacity_bytes: device memory of each node, by group; a group that is missing has no limit.
        host_bytes: host memory of each (group, node) for parked states; None for no limit.
        late_factor: how many times its cost a `LATE` move takes.
        suspendable: what the backend says of itself.
        buffer_bytes: how many real bytes stand for a state at most.
    """

    def __init__(
        self,
        *,
        costs: SwitchCosts | None = None,
        faults: Faults | None = None,
        capacity_bytes: Mapping[str, int] | None = None,
        host_bytes: int | None = None,
        late_factor: int = LATE_FACTOR,
        suspendable: bool = True,
        buffer_bytes: int = 4096,
    ) -> None:
        if buffer_bytes < 1:
            raise Invalid(f"fake backend: buffer_bytes must be >= 1, not {buffer_bytes}")
        self.suspendable = suspendable
        self._costs = costs or FixedTable()
        self._faults = faults or Faults()
        self._capacity = dict(capacity_bytes or {})
        self._host_bytes = host_bytes
        self._late_factor = late_factor
        self._buffer_bytes = buffer_bytes
        self._places: dict[Key, Place] = {}
        self._calls: dict[str, int] = {}

    @classmethod
    def for_groups(
        cls, groups: Iterable[Group], *, costs: SwitchCosts | None = None, faults: Faults | None = None
    ) -> FakeBackend:
        """One whose nodes have the memory that their groups declare."""
        capacity = {group.name: group.capacity_bytes for group in groups if group.capacity_bytes is not None}
        return cls(costs=costs, faults=faults, capacity_bytes=capacity)

    async def park(self, order: Order) -> None:
        await self._obey("park", order)

    async def restore(self, order: Order) -> None:
        await self._obey("restore", order)

    async def discard(self, order: Order) -> None:
        await self._obey("discard", order)

    async def probe(self, group: str, node: str, job: str, *, deadline_us: int) -> Presence:
        place = self._place((group, node, job))
        move = place.move
        if move is not None and deadline_us > 0:
            until = anyio.current_time() + deadline_us / SECOND_US
            await anyio.sleep_until(until if move.ends is None else min(until, move.ends))
            if move.ends is not None and move.ends <= until:
                place.end(move)
        return place.presence()

    async def sizes(self, group: str, node: str, job: str) -> Sizes:
        return Sizes(save_bytes=self._place((group, node, job)).size_bytes)

    def allocate(self, group: str, node: str, job: str, size_bytes: int) -> None:
        """A job's process (a new one, where the last is gone) makes its state on the device.

        Raises:
            BackendError: the job has a state here already, or the device has no room; nothing changed.
        """
        place = self._place((group, node, job))
        if not place.empty:
            raise BackendError(f"job {job!r} has a state on {group}/{node} already: discard that first")
        self._check_device(group, node, size_bytes)
        self._create(place, (group, node, job), size_bytes, adopted=False)

    def work(self, group: str, node: str, job: str) -> None:
        """The job computes: its state changes. Raises `BackendError` where it is not on the device."""
        self._place((group, node, job)).device = worked_on(self.contents(group, node, job))

    def contents(self, group: str, node: str, job: str) -> bytes:
        """The state, as the job reads it. Raises `BackendError` where it is not on the device."""
        contents = self._place((group, node, job)).device
        if contents is None:
            raise BackendError(f"job {job!r} has no state on the devices of {group}/{node}: restore it first")
        return contents

    def kill(self, group: str, node: str, job: str) -> None:
        """The job's process dies, and its memory with it."""
        self._place((group, node, job)).die()

    def corrupt(self, group: str, node: str, job: str) -> None:
        """One bit of the parked state flips."""
        place = self._place((group, node, job))
        if not place.host:
            raise BackendError(f"job {job!r} has no state on the host of {group}/{node}: park it first")
        place.host = bytes([place.host[0] ^ 1]) + place.host[1:]

    async def _obey(self, kind: MoveKind, order: Order) -> None:
        key = (order.group, order.node, order.job)
        place = self._place(key)
        if order.token < place.token:
            raise StaleToken(
                f"{kind} of job {order.job!r} on {order.group}/{order.node}: token {order.token} is stale, "
                f"{place.token} was seen"
            )
        if order.token > place.token:
            place.token = order.token
            place.moves.clear()
        move = place.moves.get(order.op) or self._start(kind, order, key, place)
        if move.under_way and move.fault not in (Fault.LIE, Fault.LATE):
            await self._wait(place, move)
        if move.error is not None:
            raise type(move.error)(*move.error.args)

    def _start(self, kind: MoveKind, order: Order, key: Key, place: Place) -> Move:
        number = self._number(order)
        if kind == "park" and place.empty and not place.lost:
            self._create(place, key, order.size_bytes, adopted=True)
        if place.adopted and order.size_bytes:
            place.size_bytes = order.size_bytes
        cost_us = move_us(self._costs, kind, order.group, order.job, order.size_bytes or place.size_bytes, number)
        fault = self._faults.draw(order.job, number)
        ends_us = finish_us(fault, cost_us, self._late_factor)
        ends = None if ends_us is None else anyio.current_time() + ends_us / SECOND_US
        move = Move(order.op, kind, fault, ends)
        place.begin(move)
        move.error = self._refusal(kind, order, place)
        return move

    def _refusal(self, kind: MoveKind, order: Order, place: Place) -> BackendError | None:
        """Why this order cannot even begin; the move is charged already."""
        if kind == "discard":
            return None
        if place.lost:
            return BackendError(DIED)
        if kind == "restore" and place.empty:
            return BackendError(f"job {order.job!r} has nothing parked on {order.group}/{order.node}")
        try:
            if kind == "restore":
                self._check_device(order.group, order.node, 0)
            else:
                self._check_host(order.group, order.node)
        except BackendError as error:
            return error
        return None

    def _check_device(self, group: str, node: str, more_bytes: int) -> None:
        capacity = self._capacity.get(group)
        used = sum(place.device_bytes for place in self._on(group, node)) + more_bytes
        if capacity is not None and used > capacity:
            raise BackendError(f"{group}/{node} is out of memory: {used} bytes are needed, {capacity} are there")

    def _check_host(self, group: str, node: str) -> None:
        used = sum(place.host_bytes for place in self._on(group, node))
        if self._host_bytes is not None and used > self._host_bytes:
            raise HostMemoryFull(f"host of {group}/{node}: {used} bytes would be parked, {self._host_bytes} may be")

    def _on(self, group: str, node: str) -> list[Place]:
        return [place for key, place in self._places.items() if key[:2] == (group, node)]

    def _create(self, place: Place, key: Key, size_bytes: int, *, adopted: bool) -> None:
        real = min(max(1, size_bytes), self._buffer_bytes)
        place.create(contents_of(key, real), size_bytes, adopted=adopted)

    def _number(self, order: Order) -> int:
        """The driver's number, or else how many new orders of this job came before."""
        counted = self._calls.get(order.job, 0)
        self._calls[order.job] = counted + 1
        return counted if order.number is None else order.number

    def _place(self, key: Key) -> Place:
        """Where this job's state is, after every move whose time has come."""
        place = self._places.setdefault(key, Place())
        move = place.move
        if move is not None and move.ends is not None and anyio.current_time() >= move.ends:
            place.end(move)
        return place

    async def _wait(self, place: Place, move: Move) -> None:
        try:
            if move.ends is None:
                await anyio.sleep_forever()
            else:
                await anyio.sleep_until(move.ends)
        except anyio.get_cancelled_exc_class():
            if move.fault is Fault.LOSE:  # whoever gave up before the process died is spared its death
                place.forget(move)
            raise
        place.end(move)
