"""The backend whose devices are other processes: an order goes to every worker of its place, and all must answer.

Several workers of one place are ranks of one job: they are ordered at the same time, since one that moves may wait for
its peers, and if one fails the others are put back. A place at which no worker has ever been has nothing to move.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from msgspec.structs import replace

from tsched.backends import Order, Presence, Sizes
from tsched.costs import MoveKind
from tsched.errors import BackendError, ProcessGone
from tsched.model import SECOND_US
from tsched.rpc.session import Place, Session
from tsched.rpc.v1 import worker_pb2 as pb
from tsched.rpc.wire import KINDS, as_backend_error, presence_of, sizes_of

# How much longer than a probe's deadline an answer may take to arrive.
ANSWER_US = 5 * SECOND_US

T = TypeVar("T")

_BACK: dict[MoveKind, MoveKind] = {"park": "restore", "restore": "park"}


class Places(Protocol):
    """Who is where; asked for each order."""

    @property
    def is_open(self) -> bool:
        """Whether workers are served."""
        ...

    async def workers(self, place: Place) -> list[Session]:
        """The workers of this place, once it is clear who they are.

        Raises:
            ProcessGone: they have died.
        """
        ...

    def finished(self, place: Place) -> bool:
        """Whether they have left, their job being done."""
        ...


class HubBackend:
    """Gives a scheduler's orders to its workers."""

    def __init__(self, places: Places, *, suspendable: bool) -> None:
        self.suspendable = suspendable
        self._places = places

    @property
    def closed(self) -> bool:
        """Whether no worker can answer, since none is served: orders wait until that changes."""
        return not self._places.is_open

    async def park(self, order: Order) -> None:
        await self._move("park", order)

    async def restore(self, order: Order) -> None:
        await self._move("restore", order)

    async def discard(self, order: Order) -> None:
        try:
            workers = await self._places.workers((order.group, order.node, order.job))
        except ProcessGone:
            return
        # One that is away may go on computing, whether or not there is something to move: it must end, or come back.
        ranks = [worker for worker in workers if worker.moves or worker.stream is None]
        outcomes = await _each(ranks, lambda rank: _ordered(rank, "discard", order))
        for outcome in outcomes:
            if isinstance(outcome, BackendError) and not isinstance(outcome, ProcessGone):
                raise outcome

    async def probe(self, group: str, node: str, job: str, *, deadline_us: int) -> Presence:
        try:
            ranks = await self.movers((group, node, job))
        except ProcessGone:
            return Presence(alive=False)
        order = Order(0, group, node, job, 0)
        seen = await _each(ranks, lambda rank: _probed(rank, order, deadline_us))
        for outcome in seen:
            if isinstance(outcome, BackendError):
                raise outcome
        found = [outcome for outcome in seen if isinstance(outcome, Presence)]
        return Presence(
            sum(presence.resident_bytes for presence in found),
            sum(presence.parked_bytes for presence in found),
            all(presence.alive for presence in found),
        )

    async def sizes(self, group: str, node: str, job: str) -> Sizes:
        ranks = await self.movers((group, node, job))
        outcomes = await _each(ranks, lambda rank: _sized(rank, Order(0, group, node, job, 0)))
        for outcome in outcomes:
            if isinstance(outcome, BackendError):
                raise outcome
        sizes = [outcome for outcome in outcomes if isinstance(outcome, Sizes)]
        return Sizes(
            sum(size.save_bytes for size in sizes),
            sum(size.drop_bytes for size in sizes),
            sum(size.shared_bytes for size in sizes),
        )

    def finished(self, place: Place) -> bool:
        """Whether the workers of this place have left, their job being done."""
        return self._places.finished(place)

    async def movers(self, place: Place) -> list[Session]:
        """The workers of this place that move states. Raises `ProcessGone` where they have died."""
        return [rank for rank in await self._places.workers(place) if rank.moves]

    async def _move(self, kind: MoveKind, order: Order) -> None:
        ranks = await self.movers((order.group, order.node, order.job))
        outcomes = await _each(ranks, lambda rank: _ordered(rank, kind, order))
        failures = [outcome for outcome in outcomes if isinstance(outcome, BackendError)]
        if not failures:
            return
        moved = [rank for rank, outcome in zip(ranks, outcomes, strict=True) if outcome is None]
        # Negative, so that it is no operation of the scheduler's, and the same whenever this one is asked again.
        back = replace(order, op=-order.op)
        for outcome in await _each(moved, lambda rank: _ordered(rank, _BACK[kind], back)):
            if isinstance(outcome, BackendError):
                raise BackendError(f"{failures[0]}; and another rank could not be put back: {outcome}")
        raise failures[0]


async def _each(ranks: list[Session], ask: Callable[[Session], Awaitable[T]]) -> list[T | BackendError]:
    """Ask all ranks at once, and wait for each of them."""
    outcomes: list[T | BackendError] = []
    for outcome in await asyncio.gather(*(ask(rank) for rank in ranks), return_exceptions=True):
        if isinstance(outcome, BaseException) and not isinstance(outcome, BackendError):
            raise outcome
        outcomes.append(outcome)
    return outcomes


async def _ordered(rank: Session, kind: MoveKind, order: Order) -> None:
    _heed(rank, await rank.ask(KINDS[kind], order), "done")


async def _probed(rank: Session, order: Order, deadline_us: int) -> Presence:
    try:
        async with asyncio.timeout((deadline_us + ANSWER_US) / SECOND_US):
            answer = await rank.ask(pb.KIND_PROBE, order, deadline_us)
    except ProcessGone:
        return Presence(alive=False)
    except TimeoutError:
        raise BackendError(f"{rank} did not answer a probe: it is frozen, or cannot be reached") from None
    _heed(rank, answer, "presence")
    return presence_of(answer.presence)


async def _sized(rank: Session, order: Order) -> Sizes:
    answer = await rank.ask(pb.KIND_SIZES, order)
    _heed(rank, answer, "sizes")
    return sizes_of(answer.sizes)


def _heed(rank: Session, answer: pb.Answer, expected: str) -> None:
    """Raises what the worker said went wrong, and for an answer to another question."""
    if answer.HasField("failure"):
        raise as_backend_error(answer.failure)
    said = answer.WhichOneof("outcome")
    if said != expected:
        raise BackendError(f"{rank} answered an order with {said or 'nothing'!r} where {expected!r} was due")
