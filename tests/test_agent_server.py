"""Who may talk to an agent, in what, and what the agent may be told."""

from __future__ import annotations

import datetime
import hashlib
import os
import signal
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import grpc
import pytest
from click.testing import CliRunner
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.agent_site import LLMD, OWN, PATIENCE_S, Client, agent, client
from tsched.agent.access import Access, Refusal
from tsched.agent.config import Config, Orchestrator, read_config
from tsched.agent.server import serve
from tsched.backends import Order
from tsched.backends.fake import FakeBackend
from tsched.cli import agent as command
from tsched.errors import BackendError, Invalid, UnknownPlugin
from tsched.llmd import agent_pb2 as llmd
from tsched.orchestrator.agents import AgentBackend, AgentCredentials
from tsched.rpc.v1 import agent_pb2 as own
from tsched.rpc.v1 import worker_pb2 as pb

pytestmark = pytest.mark.anyio

TOKEN = "the orchestrator's own"
SHA256 = hashlib.sha256(TOKEN.encode()).hexdigest()
BEARER = (("authorization", f"Bearer {TOKEN}"),)
PARK = pb.Order(kind=pb.KIND_PARK, op=1, group="g", node="0", job="a", token=1)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def code_of(caller: Client, method: str, request: Any, metadata: Any = ()) -> grpc.StatusCode:
    try:
        await caller.call(method, request, metadata)
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


# -------------------------------------------------------------------------------- config


def test_flags_go_over_the_environment_that_over_the_file_and_that_over_defaults(tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    file.write_text(
        '[agent]\nlisten = "127.0.0.1:1"\nnode = "n1"\ngroups.samplers.backend = "fake"\nlimits.operations = 7\n'
    )
    environment = {"TSCHED_AGENT__LISTEN": "127.0.0.1:2", "TSCHED_AGENT__NODE": "n2", "TSCHED_SERVER__LISTEN": "x"}
    config = read_config(file, flags={"node": "n3", "backend": None}, environment=environment)
    assert (config.listen, config.node, config.backend) == ("127.0.0.1:2", "n3", "process")
    assert (config.groups["samplers"].backend, config.limits.operations) == ("fake", 7)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[agent]\nlisten = 'nowhere'", "agent.listen: address 'nowhere' is neither"),
        ("[agent]\nlisten = '0.0.0.0:9001'", "in plain text: give [agent.tls]"),
        ("[agent]\nother = 1", "agent.other: is not a known key"),
        ("[server]\nlisten = ''", "server: is not a known key"),
        ("[agent]\nnode = ''", "agent.node: node is empty"),
        ("[agent]\norchestrator.token_sha256 = 'short'", "agent.orchestrator.token_sha256"),
        ("[agent]\norchestrator.common_name = 'o'", "give tls.client_ca"),
        ("[agent]\nlimits.operations = 0", "agent.limits.operations"),
        ("[agent]\nlisten = '0.0.0.0:1'\ntls = {cert = 'c', key = 'k'}", "takes orders from anybody"),
        ("[agent", "not TOML"),
    ],
)
def test_a_wrong_config_is_refused_in_one_line(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "agent.toml"
    file.write_text(text)
    with pytest.raises(Invalid) as refused:
        read_config(file)
    assert complaint in str(refused.value)
    assert str(file) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_plain_text_for_other_hosts_must_be_asked_for() -> None:
    assert read_config(flags={"listen": "0.0.0.0:9001", "insecure": True}).insecure


def test_a_config_that_is_not_there_is_said() -> None:
    with pytest.raises(Invalid, match=r"none\.toml: cannot be read"):
        read_config(Path("none.toml"))


async def test_a_backend_that_is_not_installed_is_said_before_serving(tmp_path: Path) -> None:
    with pytest.raises(UnknownPlugin, match="no backend 'unheard-of'"):
        async with serve(Config(listen=f"unix:{tmp_path}/a.sock", backend="unheard-of", state="")):
            pass


async def test_an_address_in_use_is_said(tmp_path: Path) -> None:
    async with agent(tmp_path, FakeBackend()) as running:
        with pytest.raises(Invalid, match="another server listens there"):
            async with agent(tmp_path, FakeBackend()):
                pass
        assert running.address
    async with agent(tmp_path, FakeBackend(), listen="127.0.0.1:0") as running:
        with pytest.raises(Invalid, match="cannot be served"):
            async with agent(tmp_path, FakeBackend(), listen=running.address):
                pass


async def test_a_socket_is_its_owners_alone_and_gone_afterwards(tmp_path: Path) -> None:
    async with agent(tmp_path, FakeBackend()):
        assert stat.S_IMODE(os.stat(tmp_path / "agent.sock").st_mode) == 0o600
    assert not (tmp_path / "agent.sock").exists()


# -------------------------------------------------------------------------------- tokens


async def test_orders_are_taken_from_the_orchestrator_alone(tmp_path: Path) -> None:
    async with (
        agent(tmp_path, FakeBackend(), orchestrator={"token_sha256": SHA256}) as running,
        client(running.address) as caller,
    ):
        for method, request in (
            (OWN + "Carry", PARK),
            (OWN + "Describe", own.DescribeRequest()),
            (LLMD + "Snapshot", llmd.SnapshotRequest(job_id="a")),
            (LLMD + "Restore", llmd.RestoreRequest(job_id="a")),
            (LLMD + "Status", llmd.StatusRequest()),
            (LLMD + "GetOperation", llmd.GetOperationRequest(operation_id="1")),
        ):
            assert await code_of(caller, method, request) is grpc.StatusCode.UNAUTHENTICATED
            other = (("authorization", "Bearer another"),)
            assert await code_of(caller, method, request, other) is grpc.StatusCode.PERMISSION_DENIED
        assert await code_of(caller, OWN + "Carry", PARK, BEARER) is grpc.StatusCode.OK
        listen: Any = caller.channel.unary_stream(OWN + "Losses", own.LossesRequest.SerializeToString, None)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await anext(aiter(listen(own.LossesRequest(), timeout=PATIENCE_S)))
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_processes_of_this_host_register_without_a_token(tmp_path: Path) -> None:
    async with (
        agent(tmp_path, FakeBackend(), orchestrator={"token_sha256": SHA256}) as running,
        client(running.address) as caller,
    ):
        request = own.RegisterProcess(job="a", group="g")
        assert await code_of(caller, OWN + "Register", request) is grpc.StatusCode.INVALID_ARGUMENT  # of a fake


async def test_the_backend_of_agents_shows_its_token(tmp_path: Path) -> None:
    async with agent(tmp_path, FakeBackend(), orchestrator={"token_sha256": SHA256}) as running:
        addresses = {"g": {"0": running.address}}
        async with AgentBackend(addresses, credentials=AgentCredentials(token=TOKEN)) as backend:
            await backend.park(Order(1, "g", "0", "a", 1))
        async with AgentBackend(addresses) as stranger:
            with pytest.raises(BackendError, match="refuses: UNAUTHENTICATED"):
                await stranger.park(Order(2, "g", "0", "a", 1))


# -------------------------------------------------------------------------------- certificates


class Authority:
    """Signs certificates for a test."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.certificate = self._sign(name, self._key.public_key(), authority=True)
        (folder / f"{name}.pem").write_bytes(self.pem)

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def issue(self, name: str) -> tuple[Path, Path]:
        """The files of a certificate for this name, and of its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        cert_file, key_file = self.folder / f"{self.name}-{name}.pem", self.folder / f"{self.name}-{name}.key"
        cert_file.write_bytes(self._sign(name, key.public_key()).public_bytes(serialization.Encoding.PEM))
        key_file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return cert_file, key_file

    def _sign(self, name: str, key: ec.EllipticCurvePublicKey, authority: bool = False) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, self.name)])
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .issuer_name(issuer)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        )
        return builder.sign(self._key, hashes.SHA256())


@asynccontextmanager
async def secured(folder: Path, **settings: Any) -> AsyncIterator[tuple[str, Authority, Authority]]:
    servers, clients = Authority(folder, "servers"), Authority(folder, "clients")
    cert, key = servers.issue("agent")
    tls = {"cert": str(cert), "key": str(key), "client_ca": str(folder / "clients.pem")}
    async with agent(folder, FakeBackend(), listen="localhost:0", tls=tls, **settings) as running:
        yield running.address, servers, clients


def shown(servers: Authority, pair: tuple[Path, Path] | None) -> AgentCredentials:
    cert, key = (None, None) if pair is None else (each.read_bytes() for each in pair)
    return AgentCredentials(ca=servers.pem, cert=cert, key=key)


async def test_orders_come_from_the_certificate_of_the_orchestrators_name(tmp_path: Path) -> None:
    async with secured(tmp_path, orchestrator={"common_name": "orchestrator"}) as (address, servers, clients):
        addresses = {"g": {"0": address}}
        right = shown(servers, clients.issue("orchestrator"))
        async with AgentBackend(addresses, credentials=right) as backend:
            with anyio.fail_after(PATIENCE_S):
                await backend.park(Order(1, "g", "0", "a", 1))
        other = shown(servers, clients.issue("somebody"))
        async with AgentBackend(addresses, credentials=other) as backend:
            with anyio.fail_after(PATIENCE_S), pytest.raises(BackendError, match="refuses: PERMISSION_DENIED"):
                await backend.park(Order(2, "g", "0", "a", 1))


async def test_strangers_do_not_get_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tsched.orchestrator.remote_agent.ANSWER_S", 0.3)
    async with secured(tmp_path) as (address, servers, _):
        stranger = Authority(tmp_path, "strangers")
        for credentials in (shown(servers, None), shown(servers, stranger.issue("orchestrator")), AgentCredentials()):
            async with AgentBackend({"g": {"0": address}}, credentials=credentials) as backend:
                with anyio.fail_after(PATIENCE_S), pytest.raises(BackendError):
                    await backend.probe("g", "0", "a", deadline_us=0)


async def test_an_agent_of_another_authority_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tsched.orchestrator.remote_agent.ANSWER_S", 0.3)
    async with secured(tmp_path) as (address, _, clients):
        wrong = shown(Authority(tmp_path, "strangers"), clients.issue("orchestrator"))
        async with AgentBackend({"g": {"0": address}}, credentials=wrong) as backend:
            with anyio.fail_after(PATIENCE_S), pytest.raises(BackendError):
                await backend.probe("g", "0", "a", deadline_us=0)


async def test_a_certificate_that_is_not_there_is_said(tmp_path: Path) -> None:
    tls = {"cert": f"{tmp_path}/none.pem", "key": f"{tmp_path}/none.key"}
    with pytest.raises(Invalid, match=r"none\.key: cannot be read"):
        async with agent(tmp_path, FakeBackend(), listen="127.0.0.1:0", tls=tls):
            pass


async def test_a_certificate_that_is_none_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.pem").write_text("no certificate")
    tls = {"cert": f"{tmp_path}/a.pem", "key": f"{tmp_path}/a.pem"}
    with pytest.raises(Invalid, match=r"a\.pem: no PEM file"):
        async with agent(tmp_path, FakeBackend(), listen="127.0.0.1:0", tls=tls):
            pass


class Call:
    """What gRPC would say of a caller."""

    def __init__(self, peer: str, metadata: Any = ()) -> None:
        self._peer, self._metadata = peer, metadata

    def peer(self) -> str:
        return self._peer

    def auth_context(self) -> dict[str, list[bytes]]:
        return {}

    def invocation_metadata(self) -> Any:
        return self._metadata


@pytest.mark.parametrize("peer", ["unix:", "ipv4:127.0.0.1:7", "ipv6:%5B::1%5D:7"])
def test_this_host_may_register(peer: str) -> None:
    Access(Orchestrator(token_sha256=SHA256)).registers(Call(peer))


def test_other_hosts_may_not_register_but_the_orchestrator_may() -> None:
    access = Access(Orchestrator(token_sha256=SHA256))
    with pytest.raises(Refusal, match="from their own host"):
        access.registers(Call("ipv4:192.0.2.7:7"))
    access.registers(Call("ipv4:192.0.2.7:7", BEARER))


# -------------------------------------------------------------------------------- the command


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--listen", "0.0.0.0:0"], "in plain text"),
        (["--config", "none.toml"], "cannot be read"),
        (["--backend", "unheard-of", "--listen", "127.0.0.1:0", "--state", ""], "no backend 'unheard-of'"),
    ],
)
def test_a_wrong_start_is_one_clear_line(arguments: list[str], complaint: str) -> None:
    outcome = CliRunner().invoke(command.agent, arguments)
    assert isinstance(outcome.exception, Invalid | UnknownPlugin)
    assert complaint in str(outcome.exception)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_the_command_serves_until_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    program = "from tsched.cli import run_and_exit; from tsched.cli.agent import agent; run_and_exit(agent.main)"
    address = f"unix:{tmp_path}/a.sock"
    arguments = ["--listen", address, "--node", "n7", "--backend", "fake", "--state", f"{tmp_path}/state.json"]
    made = subprocess.Popen(  # noqa: ASYNC220  it returns at once
        [sys.executable, "-W", "error", "-c", program, *arguments], stderr=subprocess.PIPE, text=True
    )
    with made as process:
        try:
            assert process.stderr is not None
            line = await anyio.to_thread.run_sync(process.stderr.readline)
            assert line == f"agent of node n7 serves {address}\n"
            async with client(address) as caller:
                assert (await caller.describe()).node == "n7"
            process.send_signal(number)
            assert await anyio.to_thread.run_sync(process.wait, PATIENCE_S) == 0
        finally:
            process.kill()
    assert not (tmp_path / "a.sock").exists()
