"""The orchestrator as a whole: one scheduler with its log on disk, one gRPC server with all services.

    async with serve(config) as running:
        print(running.address)

The end is orderly: workers' streams first, so that what they wait for stays in the log; then the scheduler, which
tells whoever else waits to come again; then the server.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import grpc
from anyio import move_on_after

from tsched.group_commit import GroupCommit
from tsched.journal import SqliteJournal
from tsched.orchestrator.access import Access
from tsched.orchestrator.config import Config
from tsched.orchestrator.credentials import credentials
from tsched.orchestrator.entrance import Entrance
from tsched.orchestrator.guard import Guard
from tsched.orchestrator.limits import Limits
from tsched.orchestrator.llmd import TimeSlice
from tsched.rpc.hub import WorkerHub
from tsched.rpc.limits import Options
from tsched.rpc.listen import check_loop, listening
from tsched.scheduler import Scheduler

STOP_S = 0.5


@dataclass(frozen=True)
class Running:
    """A server that runs; `address` has the port that was chosen for 0."""

    config: Config
    address: str
    scheduler: Scheduler
    hub: WorkerHub


@asynccontextmanager
async def serve(config: Config) -> AsyncIterator[Running]:
    """Serve until the body ends.

    Raises:
        Invalid: an address is in use, a certificate cannot be read, or the log is damaged or of a newer version.
        JournalError: the log is of other groups, or cannot be written.
    """
    check_loop()
    async with AsyncExitStack() as stack:
        server = grpc.aio.server(options=options(config))
        bound = stack.enter_context(
            listening(server, config.address, None if config.tls is None else credentials(config.tls))
        )
        journal = GroupCommit(SqliteJournal(config.server.log, retain_records=config.server.retain_records))
        stack.callback(journal.close)
        groups = config.all_groups()
        hub = WorkerHub(grace_s=config.server.grace_s, suspendable=any(group.suspendable for group in groups))
        scheduler = Scheduler(
            groups,
            policy=config.server.policy,
            backend=hub.backend,
            journal=journal,
            reattach_s=config.server.reattach_s,
            drain_s=config.server.drain_s,
        )
        access, limits = Access(config), Limits(config.limits, scheduler)
        guard = Guard(access, limits)
        stack.push_async_callback(_stop, server, guard)
        turns = TimeSlice(scheduler, guard, config.agents)
        stack.callback(turns.close)  # after the scheduler's end: what is taken up again must not be given back
        await stack.enter_async_context(scheduler)
        await turns.recover()
        await stack.enter_async_context(hub.attending(scheduler, Entrance(scheduler, access, limits)))
        server.add_generic_rpc_handlers((hub.handler, turns.handler))
        await server.start()
        yield Running(config, str(bound), scheduler, hub)


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
