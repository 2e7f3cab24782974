"""The live scheduler, for embedding: clients ask, backends move states, the engine decides.

    async with Scheduler([Group("trainers", capacity_bytes=80 << 30)], policy="fair_share") as scheduler:
        await scheduler.add_job(Job("a", state_bytes={"trainers": 24 << 30}))
        async with scheduler.hold("a", "trainers", phase="train", estimate_s=30) as lease:
            ...

Every call may be cancelled at any await: a request that nobody waits for any more leaves the line, and a grant that
came at the same moment is given back.

With a journal, the next scheduler goes on where this one ended, however it ended. The log is replayed, not decided
again: leases are as they were and wait for their clients to acquire with the same `client` and `request`, until they
expire; moves under way are asked after by operation; engine time goes on from the last record.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from types import MappingProxyType, TracebackType
from typing import Any, Literal, Self

from anyio import CancelScope
from anyio.lowlevel import cancel_shielded_checkpoint, checkpoint_if_cancelled

from tsched import events
from tsched.backends import Backend
from tsched.clients import Clients, lost
from tsched.driver import Driver
from tsched.engine import REATTACH_US
from tsched.errors import Invalid, LeaseLost
from tsched.journal import Header, Journal
from tsched.lease import Lease
from tsched.model import SECOND_US, Group, seconds
from tsched.movers import Movers
from tsched.observers import Subscription
from tsched.operations import Operations
from tsched.plugins import load_policy
from tsched.policies import Policy
from tsched.status import GroupStatus, Holding, Status, read_group, read_holder, read_status

SNAPSHOT_EVERY = 10_000
DRAIN_S = 30.0


class Scheduler(Operations):
    """Gives groups of devices to jobs in turns; an async context manager, under asyncio and trio alike.

    Args:
        groups: what is scheduled.
        policy: who is next: a policy, or the name or dotted path of one, with options.
        backend: what parks and restores states: one for all groups, or one by group. Where there is none nothing is
            moved: jobs free their memory themselves before they yield.
        journal: where decisions are kept; it is not closed here. Without one they are forgotten. With `GroupCommit`
            calls return, and moves begin, only once what they depend on is on disk.
        snapshot_every: how many records lie between two snapshots.
        reattach_s: how long after a restart a lease waits for its client to come back.
        drain_s: how long the end waits for moves under way; the others are left to the log.

    Raises:
        Invalid: two groups have one name, or a backend does not fit; when entered: the journal cannot be understood.
        JournalError: when entered: the journal is of other groups. When left: it could not be written.
    """

    def __init__(
        self,
        groups: Iterable[Group],
        *,
        policy: str | Policy = "fifo",
        backend: Backend | Mapping[str, Backend] | None = None,
        journal: Journal | None = None,
        snapshot_every: int = SNAPSHOT_EVERY,
        reattach_s: float = REATTACH_US / SECOND_US,
        drain_s: float = DRAIN_S,
    ) -> None:
        self._groups = _checked(groups)
        self._resumable = journal is not None
        self._drain_s = drain_s
        self._entered = False
        self._clients = Clients(self)
        super().__init__(
            Driver(
                self._groups,
                load_policy(policy),
                Header(self._groups, policy if isinstance(policy, str) else policy.name),
                movers=Movers(self._groups, backend),
                clients=self._clients,
                journal=journal,
                snapshot_every=snapshot_every,
                reattach_us=seconds(reattach_s),
            )
        )

    async def __aenter__(self) -> Self:
        if self._entered:
            raise RuntimeError(
                "a Scheduler runs once: make a new one; with the same journal it goes on where this ended"
            )
        self._entered = True
        await self._driver.start()
        self._recovered_jobs = dict(self._driver.engine.state.jobs)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Refuse who waits, wait for moves under way, end. With a journal, leases and named requests live on in it."""
        self._driver.closing = True
        nameless = self._clients.close()
        for key in reversed(nameless) if self._resumable else ():
            lease = self._state.holding.get(key)
            self._driver.report(events.PhaseYielded(lease.id) if lease is not None else events.RequestCancelled(*key))
        await self._driver.stop(self._drain_s, exc_type, exc, traceback)

    @property
    def groups(self) -> Mapping[str, Group]:
        """What is scheduled, by name."""
        return MappingProxyType({group.name: group for group in self._groups})

    # ------------------------------------------------------------------- turns

    async def acquire(
        self,
        job: str,
        groups: str | Sequence[str],
        *,
        phase: str = "",
        estimate_s: float | None = None,
        remaining_s: float | None = None,
        within: Lease | int | None = None,
        ttl_s: float | None = None,
        client: str | None = None,
        request: int | None = None,
    ) -> Lease:
        """Wait for the exclusive use of one group, or of several at once.

        Args:
            phase, estimate_s, remaining_s: what for, how long it may take, and how long the job's rest.
            within: the lease that the caller holds meanwhile; without it, waiting while holding can deadlock unseen.
            ttl_s: the lease ends unless it is renewed as often.
            client, request: name the request. The same two again are the same request: they wait in its place, or
                attach to the lease that it became, also after a restart.

        Raises:
            UnknownGroup, UnknownJob, NeverFits, WouldDeadlock, JobQuarantined, AcquireRefused: never granted, and why.
            SchedulerClosed: the scheduler is shutting down.
        """
        await checkpoint_if_cancelled()
        if self._driver.closing or not self._driver.running:
            raise self._driver.not_running()
        names = (groups,) if isinstance(groups, str) else tuple(groups)
        if ttl_s is not None and not ttl_s > 0:
            raise Invalid(f"ttl_s must be a number of seconds > 0, not {ttl_s!r}")
        if request is not None and (client is None or request < 0):
            raise Invalid(f"a request is named by client and a number >= 0, not by {client!r} and {request!r}")
        owner = job if client is None else client
        number = self._new_number(owner) if request is None else request
        event = events.PhaseRequested(
            owner,
            number,
            job,
            names,
            phase,
            None if estimate_s is None else seconds(estimate_s),
            None if remaining_s is None else seconds(remaining_s),
            None if within is None else _number(within),
            None if ttl_s is None else seconds(ttl_s),
        )
        key = (owner, number)
        self._same_request(key, job, names)
        waiter = self._clients.enter(key, request is None)
        try:
            self._driver.tell(event)
            if waiter.answered:
                await cancel_shielded_checkpoint()
            else:
                await waiter.wait()
            await self._driver.written()
        except BaseException:
            if self._clients.leave(key, waiter):
                self._withdraw(key, waiter.lease)
            raise
        if waiter.failure is not None:
            raise waiter.failure()
        assert waiter.lease is not None
        if waiter.lease.lost_reason is not None:  # in the same moment as it was granted
            raise lost(waiter.lease)
        return waiter.lease

    async def attach(self, lease: int, client: str) -> Lease:
        """Take up a lease from before a restart again, by its number; waits while its turn is suspended.

        Raises:
            LeaseLost: it has ended, or never was this client's.
            and all that `acquire` raises.
        """
        if self.client_of(lease) != client:
            raise LeaseLost(f"lease {lease} has ended, or never was client {client!r}'s")
        request = self._state.leases[lease].request
        return await self.acquire(request.job, request.groups, client=client, request=request.number)

    async def release(self, lease: Lease | int, groups: str | Sequence[str] = ()) -> None:
        """Give back a lease, or `groups` of it. What was given back before is no error.

        Raises:
            LeaseLost: it ended before, by time or by force.
            Invalid: it is not on one of these groups.
            SchedulerClosed: the scheduler has ended.
        """
        names = (groups,) if isinstance(groups, str) else tuple(groups)
        handle = lease if isinstance(lease, Lease) else self._clients.lease(lease)
        if handle is None:  # nobody has come back for it since a restart
            await self._tell(events.PhaseYielded(_number(lease), names), LeaseLost)
            return
        if handle.lost_reason is not None:
            raise lost(handle)
        for name in names:
            if name not in handle.tokens:
                raise Invalid(f"lease {handle.id} of job {handle.job!r} is not on group {name!r}: {handle.groups}")
        self._give_back(handle, names)
        await cancel_shielded_checkpoint()
        await self._driver.written()

    @asynccontextmanager
    async def hold(
        self,
        job: str,
        groups: str | Sequence[str],
        *,
        phase: str = "",
        estimate_s: float | None = None,
        remaining_s: float | None = None,
        within: Lease | int | None = None,
        ttl_s: float | None = None,
        client: str | None = None,
        request: int | None = None,
        on_lost: Literal["raise", "cancel"] = "raise",
    ) -> AsyncIterator[Lease]:
        """Acquire, run the body, release. `on_lost="cancel"` cancels the body as soon as the lease is lost.

        Raises:
            LeaseLost: the lease ended before the body did.
            and all that `acquire` raises.
        """
        if on_lost not in ("raise", "cancel"):
            raise Invalid(f"on_lost must be 'raise' or 'cancel', not {on_lost!r}")
        lease = await self.acquire(
            job,
            groups,
            phase=phase,
            estimate_s=estimate_s,
            remaining_s=remaining_s,
            within=within,
            ttl_s=ttl_s,
            client=client,
            request=request,
        )
        with CancelScope() as scope:
            if on_lost == "cancel":
                lease.on_change = lambda: scope.cancel() if lease.lost_reason is not None else None
            try:
                yield lease
            finally:
                lease.on_change = None
                if self._driver.running:
                    self._give_back(lease, ())
                await cancel_shielded_checkpoint()
        if lease.lost_reason is not None:
            raise lost(lease)

    async def renew(self, lease: Lease | int) -> None:
        """The holder is alive: the lease's time to live starts anew. Raises `LeaseLost` where it has ended."""
        if isinstance(lease, Lease) and lease.lost_reason is not None:
            raise lost(lease)
        await self._tell(events.LeaseRenewed(_number(lease)), LeaseLost, durable=False)

    # --------------------------------------------------------------- observing

    def client_of(self, lease: int) -> str | None:
        """Whose lease this is; None where it has ended."""
        known = self._state.leases.get(lease)
        return None if known is None else known.request.client

    def knows(self, client: str, request: int) -> bool:
        """Whether this request waits, or is a lease that lasts."""
        key = (client, request)
        return key in self._state.requests or key in self._state.holding

    def job_of(self, lease: int) -> str | None:
        """Whose turn this is; None where it has ended."""
        known = self._state.leases.get(lease)
        return None if known is None else known.job

    def request_of(self, lease: int) -> int | None:
        """The number of the request that it answers; None where it has ended."""
        known = self._state.leases.get(lease)
        return None if known is None else known.request.number

    def standing(self, group: str, job: str) -> str | None:
        """Where this job's state on the group is; None where it has none there. Raises `UnknownGroup`."""
        self._known_group(group)
        place = self._state.groups[group].ledger.places.get(job)
        return None if place is None else place.standing.value

    def is_quarantined(self, job: str) -> bool:
        """Whether the job gets no turns until an operator readmits it."""
        return job in self._state.quarantined

    def holder(self, group: str) -> Holding | None:
        """Who has the turn on this group. Raises `UnknownGroup`."""
        self._known_group(group)
        return read_holder(self._state, group, self._driver.now_us())

    def waiting(self, group: str | None = None) -> int:
        """How many requests wait, for this group or altogether. Raises `UnknownGroup`."""
        if group is None:
            return len(self._state.requests)
        self._known_group(group)
        return len(self._state.groups[group].queue)

    def lost_nodes(self, group: str) -> Mapping[str, str]:
        """The nodes for whose sake the group takes no new turns, each with the reason. Raises `UnknownGroup`."""
        self._known_group(group)
        return MappingProxyType(self._state.groups[group].lost)

    def group_status(self, group: str) -> GroupStatus:
        """One group at this moment. Raises `UnknownGroup`."""
        self._known_group(group)
        return read_group(self._state, group, self._driver.now_us())

    @property
    def stalled(self) -> str:
        """Why the journal cannot be written just now, where it is deferred: until it can, nothing new is taken."""
        return self._driver.stalled

    def now_s(self) -> float:
        """What the scheduler's clock says; its zero is when the first one with this journal began."""
        return self._driver.now_us() / SECOND_US

    def status(self) -> Status:
        """All groups and jobs at this moment."""
        return read_status(self._state, self._driver.now_us())

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain data, for who predicts from it; nothing in it changes any more."""
        return self._driver.engine.snapshot()

    def subscribe(self, buffer: int = 1024) -> Subscription:
        """Watch decisions from now on: `async with scheduler.subscribe() as records: async for record in records: ...`.

        A reader that falls `buffer` records behind is dropped, and told so by `Overrun`.
        """
        if not self._driver.running:
            raise self._driver.not_running()
        return self._driver.observers.add(buffer)

    # ------------------------------------------------------------------ inside

    def _give_back(self, lease: Lease, groups: tuple[str, ...]) -> None:
        if lease.groups:
            everything = set(groups) >= set(lease.groups)
            self._clients.give_back(lease, groups)
            self._driver.feed(events.PhaseYielded(lease.id, () if everything else groups))

    def _withdraw(self, key: tuple[str, int], lease: Lease | None) -> None:
        """The caller is gone; so is its request, or the grant that crossed its way."""
        if not self._driver.running:
            return
        if lease is not None:
            self._give_back(lease, ())
        elif key in self._state.requests:
            self._driver.feed(events.RequestCancelled(*key))

    def _same_request(self, key: tuple[str, int], job: str, groups: tuple[str, ...]) -> None:
        """A request is named once: the same name for another job is somebody else's mistake."""
        known = self._state.requests.get(key)
        if known is None and key in self._state.holding:
            known = self._state.holding[key].request
        if known is not None and (known.job != job or not set(known.groups) <= set(groups)):
            raise Invalid(
                f"request {key[1]} of client {key[0]!r} is of job {known.job!r} for {', '.join(known.groups)}: "
                "take a new number for another one"
            )

    def _new_number(self, client: str) -> int:
        """A request number that nobody can name and this client has not used: no record has it yet."""
        state, number = self._state, -1 - self._driver.seq
        while (client, number) in state.requests or (client, number) in state.holding:
            number -= 1
        return number


def _checked(groups: Iterable[Group]) -> tuple[Group, ...]:
    found = tuple(groups)
    if not found:
        raise Invalid("a scheduler needs at least one group")
    names = [group.name for group in found]
    for name in names:
        if names.count(name) > 1:
            raise Invalid(f"two groups are called {name!r}: names must be distinct")
    return found


def _number(lease: Lease | int) -> int:
    return lease.id if isinstance(lease, Lease) else lease
