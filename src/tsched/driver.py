"""The engine, driven by a real clock and real backends.

Everything that happens goes through `feed`: the engine is asked, the record is written, and only then is anything
done. There is no await on that path, so nothing comes between a decision and its effect, and a yield reaches the
next holder in one step of the event loop. Where the journal is deferred, the effects stay in this process until
`written` says that the record is on disk: callers hear of nothing and no move begins before. Nothing is polled: one
task sleeps until the time that the engine named last, and each node's share of a move is a task of its own.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any

import anyio
import msgspec
import structlog
from anyio.abc import TaskGroup, TaskStatus
from anyio.lowlevel import checkpoint

from tsched.backends import Order
from tsched.clients import Clients, closed
from tsched.clock import Clock
from tsched.commands import Command, Discard, Grant, Park, Quarantine, Refuse, Restore, Revoke, Suspend, WakeAt
from tsched.engine import Engine
from tsched.errors import Invalid, JournalError, JournalStalled, SchedulerClosed
from tsched.events import Event, EvictionForced, LeaseRenewed, PhaseYielded, RequestCancelled, Restarted, Woke
from tsched.journal import Deferred, Header, Journal, Record, Recovered
from tsched.model import Group
from tsched.movers import Move, Movers
from tsched.observers import Observers
from tsched.policies import Policy

_log: structlog.stdlib.BoundLogger = structlog.wrap_logger(
    logging.getLogger("tsched"),
    processors=[structlog.processors.KeyValueRenderer(key_order=["event"])],
    wrapper_class=structlog.stdlib.BoundLogger,
)


GOING_ON = (LeaseRenewed, PhaseYielded, RequestCancelled)


class NoJournal:
    """Keeps nothing."""

    def begin(self, header: Header) -> None: ...

    def append(self, record: Record) -> None: ...

    def load(self) -> Recovered | None:
        return None

    def save_snapshot(self, seq: int, snapshot: dict[str, Any]) -> None: ...

    def close(self) -> None: ...


class Driver:
    """Feeds one engine and does what it says, between `start` and `stop`."""

    def __init__(
        self,
        groups: Sequence[Group],
        policy: Policy,
        header: Header,
        *,
        movers: Movers,
        clients: Clients,
        journal: Journal | None,
        snapshot_every: int,
        reattach_us: int,
    ) -> None:
        self._groups, self._policy, self._reattach_us = groups, policy, reattach_us
        self._header = header
        self._movers = movers
        self._clients = clients
        self._journal = journal or NoJournal()
        self._deferred = journal if isinstance(journal, Deferred) else None
        self._snapshot_every = snapshot_every if journal is not None else 0
        self._wake_us: int | None = None
        self._alarm: anyio.CancelScope | None = None
        self._moving = 0
        self._under_way: dict[Order, anyio.CancelScope] = {}
        self._settled: anyio.Event | None = None
        self.started = False
        self.closing = False
        self._clock: Clock
        self._tasks: TaskGroup
        self.engine = Engine(groups, policy, reattach_us=reattach_us)
        self.observers = Observers()
        self.seq = 0
        self.running = False
        self.failure: Exception | None = None

    def not_running(self) -> Exception:
        """Why it takes nothing: it failed, it has ended, or it was never entered."""
        if self.failure is None and not self.started:
            return SchedulerClosed("the scheduler has not started: enter it with `async with`")
        return self.failure or closed()

    def now_us(self) -> int:
        return self._clock.now_us() if self.running else self.engine.state.now

    # ---------------------------------------------------------------- the path

    def feed(self, event: Event) -> Sequence[Command]:
        """Let the engine decide, write it down, do it.

        Raises:
            SchedulerClosed: it is not running.
            JournalError: the record cannot be written; nothing was done, and nothing will be any more.
        """
        if not self.running:
            raise self.not_running()
        engine = self.engine
        try:
            commands = engine.handle(event, self._clock.now_us())
            record = Record(self.seq, engine.state.now, event, tuple(commands))
            self._journal.append(record)
            self.seq += 1
            if self._snapshot_every and self.seq % self._snapshot_every == 0:
                self._journal.save_snapshot(record.seq, engine.snapshot())
        except Exception as error:
            self._fail(error)
            raise
        for command in commands:
            self._do(command)
        if isinstance(event, EvictionForced):
            self._call_off(event.group, event.job)
        self.observers.tell(record)
        return commands

    def tell(self, event: Event) -> Sequence[Command]:
        """Feed what a caller says, once it is seen to be of a form that the log can hold.

        Raises:
            Invalid: it is not.
            JournalStalled: the log cannot be written just now; only what a holder or a waiter says is still taken.
        """
        if self.stalled and not isinstance(event, GOING_ON):
            raise JournalStalled(f"the decision log cannot be written, so that nothing new is taken: {self.stalled}")
        try:
            msgspec.json.decode(msgspec.json.encode(event), type=Event)
        except (msgspec.MsgspecError, TypeError, ValueError, OverflowError) as error:
            raise Invalid(f"{type(event).__name__} cannot be taken: {error}") from None
        return self.feed(event)

    @property
    def stalled(self) -> str:
        """Why the log cannot be written just now; empty while it can."""
        return "" if self._deferred is None else self._deferred.stalled

    async def written(self) -> None:
        """Wait until all that was decided so far is on disk; raises what made that impossible."""
        if self._deferred is None:
            return
        try:
            await self._deferred.durable()
        except JournalError as error:
            if self.running:
                self._fail(error)
            raise

    def _do(self, command: Command) -> None:
        match command:
            case Grant():
                self._grant(command)
            case WakeAt(when_us):
                self._arm(when_us)
            case Park() | Restore() | Discard():
                self._move(command)
            case Refuse():
                self._clients.refused(command)
            case Revoke(lease, groups, reason):
                _log.warning("lease_revoked", lease=lease, groups=list(groups), reason=reason)
                self._clients.revoked(command)
            case Quarantine(job, reason):
                _log.warning("job_quarantined", job=job, reason=reason)
            case Suspend(lease):
                self._clients.suspended(lease)
            case _:
                pass

    def _grant(self, grant: Grant) -> None:
        """Who waits in `acquire` hears of it there; one whose turn was interrupted, once the log has it."""
        if self._deferred is not None and self._clients.lease(grant.lease) is not None:
            self._tasks.start_soon(self._resume, grant)
        else:
            self._clients.granted(grant)

    async def _resume(self, grant: Grant) -> None:
        with suppress(JournalError):
            await self.written()
            lease = self.engine.state.leases.get(grant.lease)
            if lease is not None and lease.tokens == grant.tokens:  # else it was interrupted again, or has ended
                self._clients.granted(grant)

    def _fail(self, error: Exception) -> None:
        """Stop at once: what is not written must not happen."""
        self.failure = error
        self.running = False
        self._clients.close(error)
        self.observers.close(error)
        self._tasks.cancel_scope.cancel()

    # --------------------------------------------------------- time and moves

    def _arm(self, when_us: int) -> None:
        self._wake_us = when_us
        if self._alarm is not None:
            self._alarm.deadline = self._clock.loop_time(when_us)

    async def _tick(self, *, task_status: TaskStatus[None]) -> None:
        """Tell the engine when the time has come that it named last."""
        while True:
            deadline = self._clock.loop_time(self._wake_us) if self._wake_us is not None else float("inf")
            with anyio.CancelScope(deadline=deadline) as self._alarm:
                if not self.running:
                    task_status.started()
                await anyio.sleep_forever()
            self._alarm = None
            if self._wake_us is not None and self._clock.now_us() >= self._wake_us:
                self._wake_us = None
                self.report(Woke())

    def _move(self, move: Move) -> None:
        if self.closing:  # left to the log: the next scheduler asks for it again
            return
        for order in self._movers.orders(move):
            self._moving += 1
            self._tasks.start_soon(self._carry_out, move, order)

    async def _carry_out(self, move: Move, order: Order) -> None:
        try:
            with anyio.CancelScope() as scope:
                self._under_way[order] = scope
                await self.written()
                answer = await self._movers.carry_out(move, order)
                if move.op in self.engine.state.moves:  # else a newer move took its place
                    self.report(answer)
        except JournalError:
            pass  # which has ended everything
        finally:
            del self._under_way[order]
            self._moving -= 1
            if not self._moving and self._settled is not None:
                self._settled.set()

    def _call_off(self, group: str, job: str) -> None:
        """An operator vouched that the job's state is gone: a move of it must not find the next one there."""
        for order, scope in self._under_way.items():
            if (order.group, order.job) == (group, job) and order.op not in self.engine.state.moves:
                scope.cancel()

    def _leave_unheard(self) -> None:
        """Moves that nobody will answer are left to the log: the next scheduler asks for them again."""
        for order, scope in self._under_way.items():
            if self._movers.unheard(order):
                scope.cancel()

    def report(self, event: Event) -> None:
        """Feed what happened by itself; there is no caller to hear of a failure, which is raised by `stop`."""
        with suppress(Exception):
            self.feed(event)

    # ------------------------------------------------------- start and stop

    async def start(self) -> None:
        """Read the log, if there is one, and go on from it."""
        self.started = True
        recovered = self._journal.load()
        if recovered is not None:
            self._recover(recovered)
        self._journal.begin(self._header)
        self._clock = Clock(self.engine.state.now)
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        try:
            await self._tasks.start(self._tick)
        except BaseException:
            self._tasks.cancel_scope.cancel()
            await self._tasks.__aexit__(*sys.exc_info())
            raise
        self.running = True
        if recovered is not None:
            self.report(Restarted())
            wake_us = self.engine.wake_at()
            if wake_us is not None:
                self._arm(wake_us)

    def _recover(self, recovered: Recovered) -> None:
        _check_groups(recovered.header.groups, self._groups)
        if recovered.snapshot is not None:
            self.engine = Engine.restore(recovered.snapshot, self._groups, self._policy, reattach_us=self._reattach_us)
        for record in recovered.records:
            try:
                self.engine.apply(record.event, record.commands, record.now)
            except LookupError as error:
                raise JournalError(f"record {record.seq} does not follow from those before it: {error!r}") from error
        self.seq = recovered.next_seq

    async def stop(
        self,
        drain_s: float,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Wait for moves under way, at most so long, then end every task. Raises what made it fail, if it did."""
        cancelled = exc_type is not None and issubclass(exc_type, anyio.get_cancelled_exc_class())
        self.closing = True
        try:
            if self._moving and self.running and not cancelled:
                self._settled = anyio.Event()
                with anyio.move_on_after(drain_s):
                    await checkpoint()  # so that every move has begun
                    self._leave_unheard()
                    await self._settled.wait()
            if self.running and not cancelled:
                with anyio.move_on_after(drain_s), suppress(JournalError):
                    await self.written()
        finally:
            self.running = False
            self._clients.close(self.failure)
            self.observers.close(self.failure)
            self._tasks.cancel_scope.cancel()
            # An ordinary exception of the body must leave as it is, not in a group.
            await self._tasks.__aexit__(*((exc_type, exc, traceback) if cancelled else (None, None, None)))
        if self.failure is not None:
            raise self.failure


def _check_groups(logged: Iterable[Group], configured: Iterable[Group]) -> None:
    nodes = {group.name: group.nodes for group in configured}
    for group in logged:
        if group.name not in nodes:
            raise JournalError(
                f"the log knows group {group.name!r}, which is not configured: name it, or start a new log"
            )
        if set(group.nodes) != set(nodes[group.name]):
            raise JournalError(
                f"the log knows group {group.name!r} with nodes {', '.join(group.nodes)}, configured are "
                f"{', '.join(nodes[group.name])}: name the same ones, or start a new log"
            )
