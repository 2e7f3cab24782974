"""One agent, served: `async with serve(config) as agent: print(agent.address)`. Needs asyncio.

Both services are on one address. At the end moves under way go on in their threads, and the jobs stay as they are.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tsched.agent.access import Access
from tsched.agent.channel_mover import Asleep
from tsched.agent.config import Config, Tls
from tsched.agent.desk import Desk
from tsched.agent.devices import Devices, find_nvml
from tsched.agent.endpoint_mover import EndpointMover, Holder, holder_of
from tsched.agent.fence import Fence
from tsched.agent.llmd_movers import LlmdMovers
from tsched.agent.losses import Losses
from tsched.agent.operations import Operations
from tsched.agent.roll import Roll
from tsched.agent.state_file import StateFile
from tsched.agent.stock import Stock
from tsched.agent.workloads import Workloads
from tsched.backends import Backend
from tsched.backends.app import AppBackend
from tsched.backends.nvml import Nvml
from tsched.errors import Invalid, MissingExtra
from tsched.rpc.address import Address, clear_way, parse
from tsched.rpc.limits import Options

try:
    import grpc

    from tsched.agent.llmd import LlmdService
    from tsched.agent.service import AgentService
except ImportError as missing:
    raise MissingExtra("the agent needs gRPC: pip install 'tsched[rpc]'") from missing

STOP_S = 0.2
# Every order under way is a call that waits, and every workload a stream.
_STREAMS = 4096


@dataclass(frozen=True, slots=True)
class RunningAgent:
    """An agent that serves; `address` has the port that was chosen for 0."""

    address: str
    desk: Desk


@asynccontextmanager
async def serve(
    config: Config,
    *,
    backends: Mapping[str, Backend] | None = None,
    nvml: Nvml | None = None,
    holder: Holder | None = None,
) -> AsyncIterator[RunningAgent]:
    """Serve until the body ends.

    Args:
        backends: backends that are made already, by group, instead of those in the config; "" is for every group.
        nvml: what reads the devices; by default the driver's, where there is one.
        holder: says what an engine's processes hold on the devices; by default `nvml` does.

    Raises:
        Invalid: the address is in use, a certificate cannot be read, or a backend cannot be made.
    """
    nvml = nvml or find_nvml()
    state = StateFile(Path(config.state) if config.state else None)
    roll = Roll(state)
    losses = Losses(roll, config.node)
    stock = Stock(config, roll, losses, nvml, backends)
    stock.check()
    workloads = Workloads(config.limits.workloads)
    asleep = Asleep(workloads, config.limits.move_timeout_s)
    desk = Desk(config.node, stock, Fence(state), roll, losses, asleep)
    endpoints = EndpointMover(AppBackend(), roll, holder or holder_of(nvml))
    movers = LlmdMovers(config.node, stock, roll, losses, asleep, endpoints)
    devices, access = Devices(nvml), Access(config.orchestrator)
    operations = Operations(config.limits.operations)
    own = AgentService(desk, devices, access, sorted(config.groups))
    llmd = LlmdService(desk, movers, workloads, operations, devices, access, config.limits.move_timeout_s)
    server = grpc.aio.server(options=_options(config.limits.message_bytes))
    server.add_generic_rpc_handlers((own.handler(), llmd.handler()))
    bound = _bind(server, parse(config.listen), config.tls)
    try:
        await server.start()
        losses.begin()
        yield RunningAgent(str(bound), desk)
    finally:
        workloads.close()
        await server.stop(STOP_S)
        losses.close()
        if bound.path:
            with suppress(FileNotFoundError):
                os.unlink(bound.path)


def _options(message_bytes: int) -> Options:
    """No keepalive: a workload that is frozen answers none, and is not dead."""
    return [
        ("grpc.max_receive_message_length", message_bytes),
        ("grpc.max_send_message_length", message_bytes),
        ("grpc.max_metadata_size", 16 << 10),
        ("grpc.so_reuseport", 0),
        ("grpc.max_concurrent_streams", _STREAMS),
        ("grpc.server.max_pending_requests", 100_000),
        ("grpc.server.max_pending_requests_hard_limit", 200_000),
        # An orchestrator asks whether its agents live; the default would end its connection for asking often.
        ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
        ("grpc.keepalive_permit_without_calls", 1),
    ]


def _bind(server: grpc.aio.Server, address: Address, tls: Tls | None) -> Address:
    """Open the socket; one with a path is its owner's alone."""
    if address.path:
        clear_way(address)
    before = os.umask(0o177)
    try:
        port = _add_port(server, address, tls)
    except RuntimeError as error:
        raise Invalid(f"address {address} cannot be served: {error}") from error
    finally:
        os.umask(before)
    return address if address.path else Address(host=address.host, port=port)


def _add_port(server: grpc.aio.Server, address: Address, tls: Tls | None) -> int:
    if tls is None or address.path:
        return server.add_insecure_port(address.target)
    return server.add_secure_port(address.target, _credentials(tls))


def _credentials(tls: Tls) -> grpc.ServerCredentials:
    """With a client authority every client must show a certificate of it."""
    pair = _pem(tls.key), _pem(tls.cert)
    authority = None if tls.client_ca is None else _pem(tls.client_ca)
    return grpc.ssl_server_credentials([pair], authority, require_client_auth=authority is not None)


def _pem(file: Path) -> bytes:
    try:
        content = file.read_bytes()
    except OSError as error:
        raise Invalid(f"{file}: cannot be read: {error.strerror or error}") from None
    if b"-----BEGIN " not in content:
        raise Invalid(f"{file}: no PEM file: one begins with -----BEGIN")
    return content
