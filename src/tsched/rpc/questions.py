"""What workers ask of the scheduler: turns, and what becomes of them.

Each question becomes one call of the scheduler, and each outcome one reply over whatever stream the worker then has. A
worker is answered for its own requests and leases alone.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from tsched.errors import AcquireRefused, Invalid, LeaseLost, TschedError, UnknownJob
from tsched.lease import Lease
from tsched.model import SECOND_US
from tsched.rpc.attendance import Attendance
from tsched.rpc.gate import Guest
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

    def acquire(self, session: Session, message: pb.Acquire, guest: Guest) -> None:
        if message.call in session.calls:
            return
        try:
            _check_acquire(session, message)
            if not self._scheduler.knows(session.client, message.request):
                guest.ask()
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
            if session.calls.get(message.call) is asyncio.current_task():
                del session.calls[message.call]

    def _ttl_s(self, message: pb.Acquire) -> float | None:
        """How soon the lease ends unless it is renewed."""
        limits = [self._scheduler.groups[name].lease_ttl_us for name in message.groups]
        found = [limit / SECOND_US for limit in limits if limit is not None]
        if message.HasField("ttl_s"):
            found.append(message.ttl_s)
        return min(found, default=None)

    async def release(self, session: Session, message: pb.Release) -> None:
        lease = self._own(session, message.lease)
        try:
            if message.unmeasured or message.HasField("state_bytes"):
                size_bytes = None if message.unmeasured else message.state_bytes
                await self._attendance.roster.resize(self._scheduler, session, size_bytes)
            if isinstance(lease, Lease):
                await self._scheduler.release(lease, [name for name in message.groups if name in lease.tokens])
                if not lease.groups:
                    session.drop(lease)
            elif lease is not None:
                await self._scheduler.release(lease, tuple(message.groups))
            elif message.lease in session.lost:
                raise LeaseLost(f"lease {message.lease} was lost: {session.lost[message.lease]}")
        except Exception as error:
            session.failed(message.call, error)
        else:
            session.done(message.call)

    async def give_all_back(self, session: Session) -> None:
        """The worker leaves: it waits for nothing and holds nothing any more."""
        for task in list(session.calls.values()):
            task.cancel()
        for number in (*session.leases, *session.returning):
            await self._give_back(session, number)

    async def _give_back(self, session: Session, number: int) -> None:
        """A lease that its worker does not want, or does not know of."""
        lease = self._own(session, number)
        if isinstance(lease, Lease):
            session.drop(lease)
        if lease is not None:
            with suppress(TschedError):
                await self._scheduler.release(lease)

    async def renew(self, session: Session, message: pb.Renew) -> None:
        lease = self._own(session, message.lease)
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
            return
        number = session.granted.pop(message.call, None)
        if number is not None and number not in session.granted.values():  # else another call has it too
            await self._give_back(session, number)

    def settle(self, session: Session, hello: pb.Hello) -> None:
        """Agree about leases and calls with a worker that has come, or come back."""
        calls, held = set(hello.calls), set(hello.held)
        for call in session.calls.keys() - calls:
            session.calls.pop(call).cancel()
        answered = {number for call, number in session.granted.items() if call in calls}
        for number in session.leases.keys() - held - answered:
            self._attendance.background.start(self._give_back(session, number))
        for number in sorted(held):
            if number in session.leases:
                session.changed(session.leases[number])
            elif number not in session.returning:
                session.returning[number] = self._attendance.background.start(self._reattach(session, number))

    def _own(self, session: Session, number: int) -> Lease | int | None:
        """The session's lease; only its number, where it is from before a restart and not taken up again yet."""
        lease = session.leases.get(number)
        return lease if lease is not None or not self._is_its(session, number) else number

    def _is_its(self, session: Session, number: int) -> bool:
        """Whether a lease that the session has not taken up is its own: of its client, and of its job."""
        scheduler = self._scheduler
        return scheduler.client_of(number) == session.client and scheduler.job_of(number) == session.job

    async def _reattach(self, session: Session, number: int) -> None:
        try:
            if number in session.lost:
                raise LeaseLost(session.lost[number])
            if not self._is_its(session, number):
                raise LeaseLost("it ended while the connection was broken")
            lease = await self._scheduler.attach(number, session.client)
        except TschedError as error:
            session.send(pb.ToWorker(changed=pb.LeaseChanged(lease=number, lost=str(error))))
        else:
            if lease.groups:
                session.hold(lease)
            session.changed(lease)
        finally:
            session.returning.pop(number, None)


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
