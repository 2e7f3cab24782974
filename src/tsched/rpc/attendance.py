"""Which workers are there, may come back, or are gone, and what of it the scheduler must hear.

A worker is gone when its process has exited, which is seen at once, or when its stream broke and it did not come back
in time. One that is merely silent, or frozen, is there. A job of which a worker is gone is lost, unless that one was
done. What is left of a lost job's workers bars its name until they have ended, since their states may still be there.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

import grpc

from tsched.errors import DuplicateJob, Invalid, ProcessGone, TschedError, UnknownGroup, UnknownJob
from tsched.rpc import processes
from tsched.rpc.background import Background
from tsched.rpc.limits import MAX_DEAD, MAX_WORKERS
from tsched.rpc.roster import Roster
from tsched.rpc.session import Place, Session
from tsched.rpc.stream import Refused, Stream
from tsched.rpc.v1 import worker_pb2 as pb
from tsched.rpc.watch import Watch
from tsched.rpc.wire import process_of
from tsched.scheduler import Scheduler


class Attendance:
    """The workers of one scheduler, over all their streams."""

    def __init__(self, grace_s: float, suspendable: bool) -> None:
        self.roster = Roster()
        self.background = Background()
        self.is_open = False
        self.dead: dict[str, str] = {}
        self._finished: dict[Place, None] = {}
        self._watch = Watch(grace_s, self._exited, self._missed)
        self._suspendable = suspendable
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
            if scheduler.jobs[name].attended and not self.roster.of(name):
                self._expected.update(dict.fromkeys((name, group) for group in job.places))
        self._patience = asyncio.get_running_loop().call_later(self._watch.grace_s, self._give_up)
        for session in self.roster.all():
            self._watch.begin(session)
            self._watch.give_grace(session)
        self.tell()

    def close(self) -> None:
        """Watch nobody any more; who is there may come back to the next one."""
        self.is_open = False
        if self._patience is not None:
            self._patience.cancel()
        for session in self.roster.all():
            self._watch.end(session)

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

    def finished(self, place: Place) -> bool:
        """Whether the last worker that was here said that the job is done, and so left nothing to anybody's care."""
        return place in self._finished

    async def news(self) -> None:
        """Wait until somebody comes or goes."""
        await self._news.wait()

    def tell(self) -> None:
        """Wake who waits for workers to come or go."""
        self._news.set()
        self._news = asyncio.Event()

    # ------------------------------------------------------------------ coming

    async def admit(self, hello: pb.Hello, trusted: bool) -> Session:
        """The session of a worker that has come, or come back; raises what speaks against it.

        Args:
            trusted: its stream comes from this host, so that what it says of its process can be true here.
        """
        while (session := self._returned(hello)) is None:
            losing = self._losing.get(hello.job)
            if losing is None:
                return await self._arrive(Session(hello, trusted))
            await asyncio.wait({losing})  # an earlier life of this job, which must not end this one
        return session

    def attach(self, session: Session, stream: Stream) -> None:
        """The worker is here, over this stream; one that it had before is ended."""
        before, session.stream = session.stream, None
        if before is not None:
            before.close(Refused(grpc.StatusCode.ABORTED, Invalid(f"{session} opened another stream")))
        self._watch.stay(session)
        session.attach(stream)

    def _returned(self, hello: pb.Hello) -> Session | None:
        """The session of a worker that was here before; raises `Invalid` where its name is another process's."""
        session = self.roster.sessions.get(hello.client)
        if session is None:
            return None
        if session.process == process_of(hello.process):
            if session.owner != hello.owner:
                raise Invalid(f"{session} is of owner {session.owner!r}, not {hello.owner!r}: take another client id")
            if session.place != (hello.group, hello.node, hello.job):
                raise Invalid(f"{session} cannot become one of job {hello.job!r} on {hello.group}/{hello.node}")
            session.take_capabilities(hello.capabilities)
            return session
        if self._left_nothing(session):
            self._forget(session)
        elif session.local and not processes.alive(session.process):
            self._exited(session)
        else:
            raise Invalid(
                f"{session} is process {session.process.pid}, which lives, or cannot be seen to have ended: "
                "take another client id"
            )
        return None

    async def _arrive(self, session: Session) -> Session:
        """Take in a worker that was not here before, as one whose stream is still to come."""
        self._check(session)
        self.dead.pop(session.job, None)
        self._finished.pop(session.place, None)
        self._watch.begin(session)
        self._watch.give_grace(session)
        try:
            await self.roster.join(self.scheduler, session)
        except TschedError as error:
            self._forget(session)
            if session.stream is not None:
                session.stream.close(Refused(grpc.StatusCode.FAILED_PRECONDITION, error))
            raise
        if session.over:
            self.roster.leave(session)
            raise ProcessGone(f"process {session.process.pid} of {session} has exited")
        self.tell()
        return session

    def _check(self, session: Session) -> None:
        for other in self.roster.all():
            if self._left_nothing(other):
                self._forget(other)
        if len(self.roster.sessions) >= MAX_WORKERS:
            raise Invalid(f"{MAX_WORKERS} workers are connected already: close one")
        self._check_place(session)
        if session.local and not processes.alive(session.process):
            raise ProcessGone(f"process {session.process.pid} of {session} is not there")
        for other in self.roster.of(session.job):
            if other.bereft:
                raise DuplicateJob(
                    f"job {session.job!r} was lost, but {other} lives, or cannot be seen to have ended: end process "
                    f"{other.process.pid}, or force the job's eviction if you know that it has"
                )

    def _check_place(self, session: Session) -> None:
        group = self.scheduler.groups.get(session.group)
        if group is None:
            raise UnknownGroup(f"no group {session.group!r}; there are: {', '.join(sorted(self.scheduler.groups))}")
        if session.node not in group.nodes:
            raise Invalid(f"group {group.name!r} has no node {session.node!r}; there are: {', '.join(group.nodes)}")
        if self._suspendable and group.suspendable and not session.suspendable:
            raise Invalid(f"group {session.group!r} is suspendable, but {session} cannot park at any moment")

    # ------------------------------------------------------------------- going

    def broke(self, session: Session) -> None:
        """Its stream is no more; it may come back, unless it has exited."""
        if self.is_open and self.roster.sessions.get(session.client) is session:
            self._watch.give_grace(session)

    async def finish(self, session: Session) -> None:
        """The job has finished with this worker, and when it was the last one, altogether."""
        self._forget(session)
        self._finished[session.place] = None
        while len(self._finished) > MAX_DEAD:
            del self._finished[next(iter(self._finished))]
        if not self.roster.of(session.job):
            with suppress(UnknownJob):
                await self.scheduler.remove_job(session.job)

    def _missed(self, session: Session) -> None:
        """It did not come back in time: its job is lost, and what it left is there until its process ends."""
        if session.local and processes.stopped(session.process):
            self._watch.give_grace(session)
        elif not session.bereft:
            self._lose(session.job, f"{session} broke off and did not come back within {self._watch.grace_s:g} s")

    def _exited(self, session: Session) -> None:
        """Its process is no more, and neither is what it held."""
        reason = f"process {session.process.pid} of {session} has exited"
        self._forget(session, ProcessGone(reason))
        if session.stream is not None:  # kept open by a child that it forked
            session.stream.close(Refused(grpc.StatusCode.ABORTED, ProcessGone(reason)))
        if not session.bereft:
            self._lose(session.job, reason)

    def _left_nothing(self, session: Session) -> bool:
        """Whether a lost job's worker that cannot be watched, and is silent, has no state left to be afraid of."""
        silent = session.bereft and not session.local and session.stream is None
        return silent and not self.scheduler.has_state(session.job)

    def _forget(self, session: Session, error: ProcessGone | None = None) -> None:
        self._watch.end(session)
        self.roster.leave(session)
        session.end(error)
        self.tell()

    def _lose(self, job: str, reason: str) -> None:
        """All workers of a lost job are orphans: none of them takes part in the job's next life."""
        for session in self.roster.of(job):
            session.bereft = True
        if len(self.dead) >= MAX_DEAD:
            self.dead = {name: why for name, why in self.dead.items() if self.scheduler.has_state(name)}
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
                self._lose(job, f"its workers did not come back within {self._watch.grace_s:g} s after a restart")
        self.tell()
