"""Which workers are there, may come back, or are gone, and what of it the scheduler must hear.

A worker is gone when its process has exited, which is seen at once, or when its stream broke and it did not come back
in time. One that is merely silent, or frozen, is there. A job of which a worker is gone is lost, unless that one was
done.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress

from tsched.errors import DuplicateJob, Invalid, ProcessGone, UnknownJob
from tsched.rpc import processes
from tsched.rpc.background import Background
from tsched.rpc.limits import MAX_WORKERS
from tsched.rpc.roster import Roster
from tsched.rpc.session import Place, Session
from tsched.rpc.v1 import worker_pb2 as pb
from tsched.rpc.wire import process_of
from tsched.scheduler import Scheduler


class Attendance:
    """The workers of one scheduler, over all their streams."""

    def __init__(self, grace_s: float, suspendable: bool) -> None:
        self.roster = Roster()
        self.background = Background()
        self.is_open = False
        self.dead: dict[str, str] = {}
        self._grace_s, self._suspendable = grace_s, suspendable
        self._scheduler: Scheduler | None = None
        self._losing: dict[str, asyncio.Task[None]] = {}
        self._expected: dict[tuple[str, str], None] = {}
        self._news = asyncio.Event()
        self._patience: asyncio.TimerHandle | None = None

    @property
    def scheduler(self) -> Scheduler:
        assert self._scheduler is not None
        return self._scheduler

    def open(self, scheduler: Scheduler) -> None:
        """Serve this scheduler; workers of jobs that have a state somewhere already are expected back."""
        self._scheduler, self.is_open = scheduler, True
        for name, job in scheduler.status().jobs.items():
            if not self.roster.of(name):
                self._expected.update(dict.fromkeys((name, group) for group in job.places))
        self._patience = asyncio.get_running_loop().call_later(self._grace_s, self._give_up)
        for session in list(self.roster.sessions.values()):
            self._watch(session)
            self._give_grace(session)
        self.tell()

    def close(self) -> None:
        """Watch nobody any more; who is there may come back to the next one."""
        self.is_open = False
        if self._patience is not None:
            self._patience.cancel()
        for session in self.roster.sessions.values():
            self._unwatch(session)
            if session.grace is not None:
                session.grace.cancel()

    async def workers(self, place: Place) -> list[Session]:
        group, _, job = place
        while True:
            found = self.roster.at(place)
            if found:
                return found
            if job in self.dead:
                raise ProcessGone(f"job {job!r} was lost: {self.dead[job]}")
            if self._scheduler is not None and (job, group) not in self._expected:
                return []
            await self._news.wait()

    async def news(self) -> None:
        """Wait until somebody comes or goes."""
        await self._news.wait()

    def tell(self) -> None:
        """Wake who waits for workers to come or go."""
        self._news.set()
        self._news = asyncio.Event()

    # --------------------------------------------------------- coming and going

    def returned(self, hello: pb.Hello) -> Session | None:
        """The session of a worker that was here before; raises `Invalid` where its name is another process's."""
        session = self.roster.sessions.get(hello.client)
        if session is None:
            return None
        if session.process == process_of(hello.process):
            if session.place != (hello.group, hello.node, hello.job):
                raise Invalid(f"{session} cannot become one of job {hello.job!r} on {hello.group}/{hello.node}")
            return session
        if not processes.known(session.process) or processes.alive(session.process):
            raise Invalid(f"{session} is process {session.process.pid}, which lives: take another client id")
        self._exited(session)
        return None

    async def arrive(self, hello: pb.Hello) -> Session:
        """Take in a worker that was not here before; raises what the scheduler says against it."""
        session = Session(hello)
        self._check(session)
        losing = self._losing.get(session.job)
        if losing is not None:  # an earlier life of this job, which must not end this one
            await losing
        self.dead.pop(session.job, None)
        await self.roster.join(self.scheduler, session)
        self._watch(session)
        self.tell()
        return session

    def _check(self, session: Session) -> None:
        if len(self.roster.sessions) >= MAX_WORKERS:
            raise Invalid(f"{MAX_WORKERS} workers are connected already: close one")
        group = self.scheduler._state.groups.get(session.group)
        if group is not None and self._suspendable and group.group.suspendable and not session.suspendable:
            raise Invalid(f"group {session.group!r} is suspendable, but {session} cannot park at any moment")
        for other in self.roster.of(session.job):
            if other.bereft:
                raise DuplicateJob(
                    f"job {session.job!r} was lost, but its process {other.process.pid} lives: end that first"
                )

    def broke(self, session: Session) -> None:
        """Its stream is no more; it may come back, unless it has exited."""
        if self.is_open and self.roster.sessions.get(session.client) is session:
            self._give_grace(session)

    async def finish(self, session: Session) -> None:
        """The job has finished with this worker, and when it was the last one, altogether."""
        session.over = True
        self._unwatch(session)
        session.end(None)
        if self.roster.leave(session):
            with suppress(UnknownJob):
                await self.scheduler.remove_job(session.job)
        self.tell()

    def _give_grace(self, session: Session) -> None:
        if processes.known(session.process) and not processes.alive(session.process):
            self._exited(session)
            return
        loop = asyncio.get_running_loop()
        session.grace = loop.call_later(self._grace_s, self._missed, session)

    def _missed(self, session: Session) -> None:
        """It did not come back in time: its job is lost, and what it left is there until its process ends."""
        if processes.known(session.process) and processes.stopped(session.process):
            self._give_grace(session)
            return
        session.bereft = True
        self._lose(session.job, f"{session} broke off and did not come back within {self._grace_s:g} s")

    def _exited(self, session: Session) -> None:
        """Its process is no more, and neither is what it held."""
        reason = f"process {session.process.pid} of {session} has exited"
        self._unwatch(session)
        if session.grace is not None:
            session.grace.cancel()
        self.roster.leave(session)
        session.end(ProcessGone(reason))
        if not session.bereft:
            self._lose(session.job, reason)
        self.tell()

    def _lose(self, job: str, reason: str) -> None:
        self.dead[job] = reason
        self._losing[job] = self.background.start(self._declare_lost(job, reason))

    async def _declare_lost(self, job: str, reason: str) -> None:
        try:
            with suppress(UnknownJob):
                await self.scheduler.lose_job(job, reason)
        finally:
            self._losing.pop(job, None)

    def _give_up(self) -> None:
        """Who was expected back after a restart has not come."""
        expected, self._expected = self._expected, {}
        for job in dict.fromkeys(job for job, _ in expected):
            if not self.roster.of(job):
                self._lose(job, f"its workers did not come back within {self._grace_s:g} s after a restart")
        self.tell()

    def _watch(self, session: Session) -> None:
        if processes.known(session.process) and session.exit_descriptor is None:
            session.exit_descriptor = processes.exit_descriptor(session.process)
        if session.exit_descriptor is not None:
            asyncio.get_running_loop().add_reader(session.exit_descriptor, self._exited, session)

    def _unwatch(self, session: Session) -> None:
        descriptor, session.exit_descriptor = session.exit_descriptor, None
        if descriptor is not None:
            asyncio.get_running_loop().remove_reader(descriptor)
            os.close(descriptor)
