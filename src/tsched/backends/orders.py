"""Orders taken once, fenced and in time: what every backend that really moves something owes the contract.

A move is a plain function that blocks; it runs in a thread of its own, so that an order can be abandoned at any await
while its move comes to its end. The book remembers what became of it, and answers the same `op` with that. Moves of one
place (group, node, job) run one after another; one that has not begun when a newer order comes is superseded. The book
knows nothing of what is moved.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import anyio
from anyio import from_thread
from anyio.lowlevel import EventLoopToken, checkpoint, current_token

from tsched.backends import Order
from tsched.costs import MoveKind
from tsched.errors import BackendError, StaleToken
from tsched.model import SECOND_US

Key = tuple[str, str, str]
Act = Callable[[], None]


class Ticket:
    """One order's move: under way, then done or failed. Who waits for it is woken in their own event loop."""

    def __init__(self, kind: MoveKind, order: Order) -> None:
        self.kind, self.order = kind, order
        self.error: BackendError | None = None
        self._over = False
        self._lock = threading.Lock()
        self._waiters: list[tuple[EventLoopToken, anyio.Event]] = []

    @property
    def over(self) -> bool:
        return self._over

    def close(self, error: BackendError | None) -> None:
        """Called once, from the move's thread."""
        with self._lock:
            self.error, self._over = error, True
            waiters, self._waiters = self._waiters, []
        for token, event in waiters:
            try:
                from_thread.run_sync(event.set, token=token)
            except RuntimeError:  # that loop has ended, and with it who waited
                continue

    async def wait(self) -> None:
        event = anyio.Event()
        with self._lock:
            if not self._over:
                self._waiters.append((current_token(), event))
        if self._over:
            await checkpoint()
        else:
            await event.wait()


@dataclass(slots=True, eq=False)
class Place:
    """The orders for one job's state on one node: those given under the newest token, and the last one."""

    token: int = 0
    tickets: dict[int, Ticket] = field(default_factory=dict)
    last: Ticket | None = None
    moving: threading.Lock = field(default_factory=threading.Lock)


class OrderBook:
    """The orders of one backend, by place."""

    def __init__(self) -> None:
        self._places: dict[Key, Place] = {}

    async def obey(self, kind: MoveKind, order: Order, act: Act, *, first: Act | None = None) -> None:
        """Have the order carried out by `act`, unless it was before, and wait for its end.

        Args:
            act: moves the state; called in a thread, at most once, never beside another move of the same place.
            first: called in the same thread before waiting for a move that is under way: what makes that one end.

        Raises:
            StaleToken: a larger token was seen.
            BackendError: what `act` raised, whatever it was, or a newer order took its place.
        """
        place = self._places.setdefault((order.group, order.node, order.job), Place())
        self._fence(kind, order, place)
        ticket = place.tickets.get(order.op)
        if ticket is None:
            ticket = place.tickets[order.op] = place.last = Ticket(kind, order)
            name = f"tsched {kind} {order.job}"
            threading.Thread(target=_run, args=(place, ticket, act, first), name=name, daemon=True).start()
        await ticket.wait()
        if ticket.error is not None:
            raise type(ticket.error)(*ticket.error.args)

    async def settle(self, group: str, node: str, job: str, *, deadline_us: int) -> None:
        """Wait until no move is under way there, at most so long."""
        place = self._places.get((group, node, job))
        with anyio.move_on_after(deadline_us / SECOND_US):
            while place is not None and place.last is not None and not place.last.over:
                await place.last.wait()

    def _fence(self, kind: MoveKind, order: Order, place: Place) -> None:
        if order.token < place.token:
            raise StaleToken(
                f"{kind} of job {order.job!r} on {order.group}/{order.node}: token {order.token} is stale, "
                f"{place.token} was seen"
            )
        if order.token > place.token:
            place.token = order.token
            place.tickets.clear()


def _run(place: Place, ticket: Ticket, act: Act, first: Act | None) -> None:
    error: BackendError | None = None
    try:
        if first is not None:
            first()
        with place.moving:
            if place.last is not ticket:
                raise BackendError(f"{ticket.kind} of job {ticket.order.job!r} was superseded before it began")
            act()
    except BackendError as failure:
        error = type(failure)(*failure.args)
    except BaseException as failure:  # whatever it is, it concerns this order alone, and must not be lost in a thread
        error = BackendError(f"{ticket.kind} of job {ticket.order.job!r}: {str(failure) or type(failure).__name__}")
    ticket.close(error)  # a new one, without a traceback whose frames would keep what was moved alive
