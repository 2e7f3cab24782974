"""What workers ask of the scheduler: turns, and what becomes of them.

Each question becomes one call of the scheduler, and each outcome one reply over whatever stream the worker then has. A
worker is answered for its own requests and leases alone.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from tsched.errors import AcquireRefused, Invalid, LeaseLost, TschedError, UnknownJob
from tsched.model import SECOND_US
from tsched.rpc.attendance import Attendance
from tsched.rpc.limits import MAX_CALLS, MAX_GROUPS, MAX_NUMBER, check_name
from tsched.rpc.session import Session
from tsched.rpc.v1 import worker_pb2 as pb
from tsched.rpc.wire import grant_message
from tsched.scheduler import Scheduler


class Questions:
    """Asks one scheduler on behalf of its workers."""

    def __init__(self, attendance: Attendance) -> None:
        self._attendance = attendance

    @property
    def _scheduler(self) -> Scheduler:
        return self._attendance.scheduler

    def acquire(self, session: Session, message: pb.Acquire) -> None:
        if message.call in session.calls:
            return
        try:
            _check_acquire(session, message)
        except TschedError as error:
            session.failed(message.call, error)
            return
        task = asyncio.ensure_future(self._wait(session, message))
        session.calls[message.call] = task

    async def _wait(self, session: Session, message: pb.Acquire) -> None:
        try:
            lease = await self._scheduler.acquire(
                session.job,
                tuple(message.groups),
                phase=message.phase,
                estimate_s=message.estimate_s if message.HasField("estimate_s") else None,
                remaining_s=message.remaining_s if message.HasField("remaining_s") else None,
                within=message.within if message.HasField("within") else None,
                ttl_s=message.ttl_s if message.HasField("ttl_s") else None,
                client=session.client,
                request=message.request,
            )
        except asyncio.CancelledError:
            session.failed(message.call, AcquireRefused("the request was withdrawn", "cancelled"))
            raise
        except UnknownJob as error:
            lost = self._attendance.dead.get(session.job)
            session.failed(message.call, error if lost is None else UnknownJob(f"job {session.job!r} was lost: {lost}"))
        except Exception as error:
            session.failed(message.call, error)
        else:
            session.hold(lease, message.call)
            ttl_s = self._ttl_s(message)
            session.send(pb.ToWorker(reply=pb.Reply(call=message.call, grant=grant_message(lease, ttl_s))))
        finally:
            session.calls.pop(message.call, None)

    def _ttl_s(self, message: pb.Acquire) -> float | None:
        """How soon the lease ends unless it is renewed."""
        groups = self._scheduler._state.groups
        limits = [groups[name].group.lease_ttl_us for name in message.groups]
        found = [limit / SECOND_US for limit in limits if limit is not None]
        if message.HasField("ttl_s"):
            found.append(message.ttl_s)
        return min(found, default=None)

    async def release(self, session: Session, message: pb.Release) -> None:
        lease = session.leases.get(message.lease)
        try:
            if message.HasField("state_bytes"):
                await self._attendance.roster.resize(self._scheduler, session, message.state_bytes)
            if lease is not None:
                await self._scheduler.release(lease, [name for name in message.groups if name in lease.tokens])
                if not lease.groups:
                    session.drop(lease)
            elif message.lease in session.lost:
                raise LeaseLost(f"lease {message.lease} was lost: {session.lost[message.lease]}")
        except Exception as error:
            session.failed(message.call, error)
        else:
            session.done(message.call)

    async def give_back(self, session: Session, number: int) -> None:
        """A lease that its worker does not want, or does not know of."""
        lease = session.leases.get(number)
        if lease is not None:
            session.drop(lease)
            with suppress(TschedError):
                await self._scheduler.release(lease)

    async def renew(self, session: Session, message: pb.Renew) -> None:
        lease = session.leases.get(message.lease)
        try:
            if lease is None:
                raise LeaseLost(
                    f"lease {message.lease} has ended: {session.lost.get(message.lease, 'it was given back')}"
                )
            await self._scheduler.renew(lease)
        except TschedError as error:
            if message.call:
                session.failed(message.call, error)
        else:
            if message.call:
                session.done(message.call)

    async def cancel(self, session: Session, message: pb.Cancel) -> None:
        task = session.calls.get(message.call)
        if task is not None:
            task.cancel()
        elif message.call in session.granted:
            await self.give_back(session, session.granted[message.call])

    def settle(self, session: Session, hello: pb.Hello) -> None:
        """Agree about leases and calls with a worker that has come, or come back."""
        calls, held = set(hello.calls), {lease.lease: lease for lease in hello.held}
        for call, task in list(session.calls.items()):
            if call not in calls:
                task.cancel()
        for call, number in list(session.granted.items()):
            if number not in held and call not in calls:
                self._attendance.background.start(self.give_back(session, number))
        for number, lease in held.items():
            if number in session.leases:
                session.changed(session.leases[number])
            elif number in session.lost or not self._is_of(session.client, number):
                reason = session.lost.get(number, "it ended while the connection was broken")
                session.send(pb.ToWorker(changed=pb.LeaseChanged(lease=number, lost=reason)))
            else:
                self._attendance.background.start(self._reattach(session, lease))

    def _is_of(self, client: str, number: int) -> bool:
        """Whether the scheduler knows the lease, from before a restart, as this client's."""
        lease = self._scheduler._state.leases.get(number)
        return lease is not None and lease.request.client == client

    async def _reattach(self, session: Session, held: pb.Held) -> None:
        groups, request = tuple(held.groups), held.request
        try:
            lease = await self._scheduler.acquire(session.job, groups, client=session.client, request=request)
        except TschedError as error:
            session.send(pb.ToWorker(changed=pb.LeaseChanged(lease=held.lease, lost=str(error))))
        else:
            session.hold(lease)
            session.changed(lease)


def _check_acquire(session: Session, message: pb.Acquire) -> None:
    if len(session.calls) >= MAX_CALLS:
        raise AcquireRefused(f"{session} waits for {MAX_CALLS} requests already: wait for one of them", "too_many")
    if len(message.groups) > MAX_GROUPS:
        raise Invalid(f"{len(message.groups)} groups in one request: at most {MAX_GROUPS} are taken")
    for name in message.groups:
        check_name("group", name)
    check_name("phase", message.phase, empty=True)
    if message.request > MAX_NUMBER:
        raise Invalid(f"request {message.request} is too large a number: at most {MAX_NUMBER} is taken")
