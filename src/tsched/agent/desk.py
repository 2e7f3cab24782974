"""Where every order arrives: checked against the fence, given to what moves the job, and remembered.

It is a backend itself. Which backend a job has is said by the order that named one, by the job's own stream, or else
by the config of its group.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from tsched.agent.channel_mover import Asleep, ChannelMover
from tsched.agent.fence import Fence
from tsched.agent.losses import Losses
from tsched.agent.process_mover import ProcessMover
from tsched.agent.roll import Roll
from tsched.agent.state_file import Key
from tsched.agent.stock import Stock
from tsched.backends import Backend, Order, Presence, Sizes
from tsched.backends.moves import give
from tsched.costs import MoveKind
from tsched.errors import BackendError, ProcessGone


class Standing(StrEnum):
    """How a job is, as people and other programs are told."""

    RUNNING = "running"
    MOVING = "moving"
    PARKED = "parked"
    FAULTED = "faulted"
    GONE = "gone"


@dataclass(slots=True)
class Entry:
    """One job of one group, as far as orders tell: under which node, how many are under way, and to whom they go."""

    node: str
    moving: int = 0
    mover: Backend | None = None


@dataclass(slots=True)
class Desk:
    """Gives orders to backends."""

    node: str
    stock: Stock
    fence: Fence
    roll: Roll
    losses: Losses
    asleep: Asleep
    suspendable: bool = True
    _entries: dict[Key, Entry] = field(default_factory=dict)
    _at_rest: dict[Key, Standing] = field(default_factory=dict)

    async def park(self, order: Order) -> None:
        await self._move("park", order)

    async def restore(self, order: Order) -> None:
        await self._move("restore", order)

    async def discard(self, order: Order) -> None:
        await self._move("discard", order)
        self.losses.forget((order.group, order.job))
        self._entries.pop((order.group, order.job), None)

    async def probe(self, group: str, node: str, job: str, *, deadline_us: int) -> Presence:
        return await self.mover(group, job).probe(group, node, job, deadline_us=deadline_us)

    async def sizes(self, group: str, node: str, job: str) -> Sizes:
        return await self.mover(group, job).sizes(group, node, job)

    def assign(self, group: str, job: str, mover: Backend) -> None:
        """The job is moved by this one from now on."""
        self._entries.setdefault((group, job), Entry(self.node)).mover = mover

    def mover(self, group: str, job: str) -> Backend:
        """What moves this job; raises as `Stock.of` does."""
        entry = self._entries.get((group, job))
        if entry is not None and entry.mover is not None:
            return entry.mover
        return ChannelMover(self.asleep) if self.asleep.knows(group, job) else self.stock.of(group)

    def jobs(self) -> list[Key]:
        """Every group and job that orders or processes have been seen of."""
        channel = [(each.group, each.job) for each in self.asleep.workloads.all()]
        return sorted({*self._entries, *self.roll.jobs, *channel})

    async def standing(self, key: Key) -> Standing:
        """How the job is now. To look at a large process is dear, so that one at rest is looked at once."""
        entry = self._entries.get(key, Entry(self.node))
        if entry.moving:
            return Standing.MOVING
        if self.losses.is_lost(key):
            return Standing.GONE
        if key in self._at_rest:
            return self._at_rest[key]
        try:
            seen = await self.probe(key[0], entry.node, key[1], deadline_us=0)
        except BackendError:
            return Standing.FAULTED
        standing = _standing(seen)
        if standing in (Standing.PARKED, Standing.RUNNING) and isinstance(self.mover(key[0], key[1]), ProcessMover):
            self._at_rest[key] = standing
        return standing

    async def _move(self, kind: MoveKind, order: Order) -> None:
        self.fence.check(kind, order)
        key = order.group, order.job
        entry = self._entries.setdefault(key, Entry(order.node))
        entry.node = order.node
        entry.moving += 1
        self._at_rest.pop(key, None)
        try:
            await give(self.mover(*key), kind, order)
        except ProcessGone:
            self._entries.pop(key, None)  # nothing is left to tell of, but for what the roll knows
            raise
        finally:
            entry.moving -= 1
            self._at_rest.pop(key, None)


def _standing(seen: Presence) -> Standing:
    if not seen.alive:
        return Standing.GONE
    if seen.parked_bytes and seen.resident_bytes:  # what it left is not free yet
        return Standing.MOVING
    return Standing.PARKED if seen.parked_bytes else Standing.RUNNING
