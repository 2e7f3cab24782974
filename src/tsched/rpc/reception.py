"""Where workers' streams begin and end, and their messages are told apart.

A stream that does not keep to the protocol is ended with a status that says why; nothing else is touched by it.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

import grpc

from tsched.errors import Invalid, SchedulerClosed, TschedError
from tsched.rpc.address import same_host
from tsched.rpc.attendance import Attendance
from tsched.rpc.gate import Context, Gate, Guest, open_gate
from tsched.rpc.limits import MAX_STREAMS, MAX_TAGS, VERSION, check_name, check_size
from tsched.rpc.questions import Questions
from tsched.rpc.session import Session
from tsched.rpc.stream import Refused, Stream, abort
from tsched.rpc.v1 import worker_pb2 as pb

HELLO_S = 10.0
END_S = 1.0

_log = logging.getLogger("tsched")


class Reception:
    """The open streams of one scheduler's workers."""

    def __init__(self, attendance: Attendance) -> None:
        self._attendance = attendance
        self.gate: Gate = open_gate
        self._questions = Questions(attendance)
        self._streams: set[Stream] = set()

    def close(self) -> None:
        """End all streams; workers may come back to the next server."""
        for stream in list(self._streams):
            stream.close(_closed())

    async def ended(self) -> None:
        """Wait until every stream has ended, after the server was stopped."""
        with suppress(TimeoutError):
            async with asyncio.timeout(END_S):
                while self._streams:
                    await self._attendance.news()

    async def attach(self, _: object, context: Context) -> None:
        """Serve one stream to its end."""
        stream = Stream(context)
        try:
            guest = self._admit(context)
        except Refused as refusal:
            await abort(context, refusal)
            return
        self._streams.add(stream)
        reader: asyncio.Task[None] | None = None
        session: Session | None = None
        try:
            session = await self._welcome(stream, same_host(context.peer()), guest)
            reader = asyncio.ensure_future(self._read(session, stream, guest))
            await stream.pump()
        except Refused as refusal:
            await abort(context, refusal)
        except asyncio.CancelledError:
            pass  # by gRPC, since the stream is no more; one that leaves a handler would keep the client waiting
        finally:
            if session is not None:
                self._detach(session, stream)
            if reader is not None:
                await _ended(reader)
            self._streams.discard(stream)
            guest.leave()
            self._attendance.tell()

    def _admit(self, context: Context) -> Guest:
        if not self._attendance.is_open:
            raise _closed()
        if len(self._streams) >= MAX_STREAMS:
            full = Invalid(f"{MAX_STREAMS} streams are open already: close one")
            raise Refused(grpc.StatusCode.RESOURCE_EXHAUSTED, full)
        return self.gate(context)

    async def _welcome(self, stream: Stream, trusted: bool, guest: Guest) -> Session:
        try:
            async with asyncio.timeout(HELLO_S):
                message = await stream.receive()
        except TimeoutError:
            message = None
        if message is None or message.WhichOneof("body") != "hello":
            raise Refused(grpc.StatusCode.INVALID_ARGUMENT, Invalid("a worker begins with Hello"))
        hello = message.hello
        try:
            _check(hello)
            guest.greet(hello)
            session = await self._attendance.admit(hello, trusted)
        except TschedError as error:
            raise Refused(grpc.StatusCode.FAILED_PRECONDITION, error) from error
        stream.send(pb.ToWorker(welcome=pb.Welcome(version=min(VERSION, hello.version))))
        self._attendance.attach(session, stream)
        self._questions.settle(session, hello)
        return session

    async def _read(self, session: Session, stream: Stream, guest: Guest) -> None:
        try:
            while not stream.closed and (message := await stream.receive()) is not None:
                if session.stream is not stream:  # the worker has come back over another one
                    break
                await self._take(session, message, guest)
            stream.close()
        except Refused as refusal:
            stream.close(refusal)
        except Exception as error:
            _log.exception("worker channel: %s", session)
            stream.close(Refused(grpc.StatusCode.INTERNAL, Invalid(f"{type(error).__name__}: {error}")))
        finally:
            self._detach(session, stream)

    def _detach(self, session: Session, stream: Stream) -> None:
        if session.stream is stream:
            session.stream = None
            self._attendance.broke(session)

    async def _take(self, session: Session, message: pb.FromWorker, guest: Guest) -> None:
        if session.over:
            return
        match message.WhichOneof("body"):
            case "acquire":
                self._questions.acquire(session, message.acquire, guest)
            case "release":
                await self._questions.release(session, message.release)
            case "renew":
                await self._questions.renew(session, message.renew)
            case "cancel":
                await self._questions.cancel(session, message.cancel)
            case "answer":
                session.answered(message.answer)
            case "goodbye":
                await self._goodbye(session, message.goodbye)
            case "hello":
                raise Refused(grpc.StatusCode.INVALID_ARGUMENT, Invalid(f"{session} said Hello twice on one stream"))
            case None:
                pass  # a message of a later version

    async def _goodbye(self, session: Session, message: pb.Goodbye) -> None:
        await self._questions.give_all_back(session)
        if message.done:
            await self._attendance.finish(session)
        session.done(message.call)


def _closed() -> Refused:
    return Refused(grpc.StatusCode.UNAVAILABLE, SchedulerClosed("the scheduler's channel has closed"))


def _check(hello: pb.Hello) -> None:
    if not 1 <= hello.version <= VERSION:
        raise Invalid(
            f"the worker speaks version {hello.version} of tsched.v1, this scheduler version {VERSION}: "
            "install the same tsched on both sides"
        )
    for what in ("client", "job", "group", "node"):
        check_name(what, getattr(hello, what))
    check_name("owner", hello.owner, empty=True)
    check_name("host", hello.process.host, empty=True)
    check_size("state_bytes", hello.state_bytes)
    check_size("turn_bytes", hello.turn_bytes)
    if len(hello.capabilities.tags) > MAX_TAGS:
        raise Invalid(f"{len(hello.capabilities.tags)} region tags: at most {MAX_TAGS} are taken")
    for tag in hello.capabilities.tags:
        check_name("region tag", tag)


async def _ended(reader: asyncio.Task[None]) -> None:
    """The stream is over, and its reader hears of it; a read that were left behind could outlive the event loop."""
    await asyncio.wait({reader}, timeout=END_S)
    reader.cancel()
