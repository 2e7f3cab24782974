"""The orchestrator as a whole: one scheduler with its log on disk, one gRPC server with all services.

    async with serve(config) as running:
        print(running.address)

The end is orderly: workers' streams first, so that what they wait for stays in the log; then the scheduler, which
waits for moves under way and tells whoever else waits to come again; then the server, and the agents' connections.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

import grpc
from anyio import move_on_after

from tsched.errors import Invalid, JournalError
from tsched.group_commit import GroupCommit
from tsched.journal import SqliteJournal
from tsched.orchestrator.access import Access
from tsched.orchestrator.agent_watch import AgentWatch
from tsched.orchestrator.backend import Both
from tsched.orchestrator.changes import Changes
from tsched.orchestrator.config import Config
from tsched.orchestrator.credentials import credentials
from tsched.orchestrator.entrance import Entrance
from tsched.orchestrator.fleet import Fleet, fleet
from tsched.orchestrator.following import Following
from tsched.orchestrator.forecast import Forecaster
from tsched.orchestrator.guard import Guard
from tsched.orchestrator.limits import Limits
from tsched.orchestrator.llmd import TimeSlice
from tsched.orchestrator.log_lock import only_writer
from tsched.orchestrator.observing import Observing, observing
from tsched.orchestrator.operator import Operator
from tsched.rpc.hub import WorkerHub
from tsched.rpc.limits import Options
from tsched.rpc.listen import check_loop, listening
from tsched.scheduler import Scheduler

STOP_S = 0.5


@dataclass(frozen=True)
class Running:
    """A server that runs; `address` has the port that was chosen for 0.

    `http` and `agent` are where the HTTP port and the embedded agent are; empty where there is none.
    """

    config: Config
    address: str
    agent: str
    scheduler: Scheduler
    hub: WorkerHub
    watch: AgentWatch
    following: Following
    http: str = ""

    async def failed(self) -> None:
        """Wait until it cannot go on, and raise why: its log is gone, say."""
        await self.following.over.wait()
        if self.following.failure is not None:
            raise self.following.failure

    def unready(self) -> list[str]:
        """Why no turns can be given on some group, a line each; none where they can."""
        found = [f"{at}: {why}" for at, why in sorted(self.watch.away.items())]
        if self.scheduler.stalled:
            found.insert(0, f"the decision log cannot be written: {self.scheduler.stalled}")
        if self.following.over.is_set():
            found.insert(0, f"the scheduler has ended: {self.following.failure or 'the server is shutting down'}")
        return found


@asynccontextmanager
async def serve(config: Config) -> AsyncIterator[Running]:
    """Serve until the body ends.

    Raises:
        Invalid: an address is in use, a certificate cannot be read, or the log is damaged, of a newer version, of
            other groups, or written by another server; or the embedded agent's section makes no sense.
        MissingExtra: what the config asks for is not installed.
        JournalError: at the end, that the log could not be written.
    """
    check_loop()
    async with AsyncExitStack() as stack:
        seen = await stack.enter_async_context(observing(config))
        server = grpc.aio.server(options=options(config))
        bound = stack.enter_context(
            listening(server, config.address, None if config.tls is None else credentials(config.tls))
        )
        stack.enter_context(only_writer(config.server.log))
        agents = await stack.enter_async_context(fleet(config))
        running = await _run(config, str(bound), server, agents, seen, stack)
        await server.start()
        yield await seen.serving(running, stack)


async def _run(
    config: Config, bound: str, server: grpc.aio.Server, agents: Fleet, seen: Observing, stack: AsyncExitStack
) -> Running:
    """Everything but the sockets."""
    groups = config.all_groups()
    hub = WorkerHub(grace_s=config.server.grace_s, suspendable=any(group.suspendable for group in groups))
    with _log_as_input():
        log = SqliteJournal(config.server.log, retain_records=config.server.retain_records)
        journal = GroupCommit(seen.timed(log))
    stack.callback(journal.close)
    scheduler = Scheduler(
        groups,
        policy=config.server.policy,
        backend=Both(hub.backend, agents.backend, agents.addresses),
        journal=journal,
        reattach_s=config.server.reattach_s,
        drain_s=config.server.drain_s,
    )
    access, limits = Access(config), Limits(config.limits, scheduler)
    guard = Guard(access, limits, seen.observe)
    stack.push_async_callback(_stop, server, guard)
    turns = TimeSlice(scheduler, guard, agents.addresses)
    stack.callback(turns.close)  # after the scheduler's end: what is taken up again must not be given back
    with _log_as_input():
        await stack.enter_async_context(scheduler)
    changes = Changes(lambda: scheduler.stalled)
    following = Following(scheduler, [changes, *seen.readers(scheduler)])
    await stack.enter_async_context(following)
    await turns.recover()
    await stack.enter_async_context(hub.attending(scheduler, Entrance(scheduler, access, limits)))
    watch = AgentWatch(scheduler, agents.backend, beat_s=config.agents.beat_s, grace_s=config.agents.grace_s)
    await stack.enter_async_context(watch)
    operator = Operator(scheduler, guard, config, changes, watch.why_away, _version(), Forecaster())
    server.add_generic_rpc_handlers((hub.handler, turns.handler, operator.handler))
    return Running(config, bound, agents.embedded, scheduler, hub, watch, following)


@contextmanager
def _log_as_input() -> Iterator[None]:
    """A log that cannot be gone on with is whoever's mistake named it."""
    try:
        yield
    except JournalError as error:
        raise Invalid(str(error)) from error


def _version() -> str:
    try:
        return version("tsched")
    except PackageNotFoundError:
        return "a checkout"


async def _stop(server: grpc.aio.Server, guard: Guard) -> None:
    """Let what was told reach the callers."""
    with move_on_after(STOP_S):
        await guard.answered()
    await server.stop(STOP_S)


def options(config: Config) -> Options:
    """The channel's: sizes, room for a burst of calls, and no keepalive, since who is frozen answers none."""
    return [
        ("grpc.max_receive_message_length", config.limits.message_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_metadata_size", 16 << 10),
        ("grpc.so_reuseport", 0),
        ("grpc.server.max_pending_requests", 100_000),
        ("grpc.server.max_pending_requests_hard_limit", 200_000),
    ]
