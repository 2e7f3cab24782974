"""What `tsched serve` can be told: one TOML file.

    [server]
    listen = "127.0.0.1:50051"         # or unix:/run/tsched.sock
    http = "127.0.0.1:9090"            # metrics and health; "" for none
    log = "tsched.db"                  # decisions, in SQLite
    policy = "fifo"

    [groups.trainers]
    capacity = "80GiB"                 # of each node; left out where unknown: one job at a time is resident
    nodes = { "0" = "host-a:9001", "1" = "host-b:9001" }     # an empty address: no agent is there
    max_hold_s = 3600

    [agents]
    ca = "agents.pem"                  # whose certificates agents show; without it connections to them are plain text
    token_file = "agents.token"        # what they are shown; or cert and key

    [tls]
    cert = "server.pem"
    key = "server.key"
    client_ca = "clients.pem"          # then clients show certificates

    [[tokens]]
    sha256 = "9f86d081…"               # of the bearer token; or common_name, of a certificate
    owner = "team-a"
    role = "job"                       # operator, read-only

    [limits]
    queue = 20000

Flags win over the environment (TSCHED_SERVER__LISTEN), that over the file, that over what stands here.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from tsched.config import FILE_VARIABLE, PREFIX, Section, Size, load
from tsched.errors import TschedError
from tsched.model import Group, seconds
from tsched.plugins import load_policy
from tsched.rpc.address import Address, parse
from tsched.rpc.limits import check_name

Role = Literal["job", "operator", "read-only"]


class Server(Section):
    """The process as a whole."""

    listen: str = "127.0.0.1:50051"
    http: str = "127.0.0.1:9090"
    log: Path = Path("tsched.db")
    policy: str = "fifo"
    insecure: bool = Field(default=False, description="plain text also where other hosts can listen")
    agent: Literal["", "embedded"] = Field(default="", description="serve the devices of this host too")
    grace_s: float = Field(default=10, gt=0, description="for a worker whose connection broke to come back")
    reattach_s: float = Field(default=60, gt=0, description="for a client to come back after a restart")
    drain_s: float = Field(default=10, ge=0, description="for moves under way when it ends")
    retain_records: int | None = Field(default=100_000, gt=0, description="how much of the log is kept")
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    spans: Literal["", "console", "otlp"] = Field(default="", description="where OpenTelemetry spans go")

    @field_validator("listen", "http")
    @classmethod
    def _address(cls, value: str) -> str:
        if value:
            parse(value)
        return value

    @field_validator("policy")
    @classmethod
    def _policy(cls, value: str) -> str:
        try:
            load_policy(value)
        except TschedError as error:
            raise ValueError(str(error)) from None
        return value

    @model_validator(mode="after")
    def _listens(self) -> Server:
        if not self.listen:
            raise ValueError("listen is empty: write host:port or unix:/path.sock")
        if self.http and parse(self.http).path:
            raise ValueError("http must be host:port, or empty")
        return self


class GroupSection(Section):
    """One group of devices."""

    capacity: Size | None = None
    nodes: dict[str, str] = Field(default={"0": ""}, description="the agents' addresses")
    lease_ttl_s: float | None = Field(default=None, gt=0)
    max_hold_s: float | None = Field(default=None, gt=0)
    max_phase_s: float | None = Field(default=None, gt=0)
    suspendable: bool = False
    prefetch: bool = True
    move_timeout_s: float = Field(default=300, gt=0)
    retries: int = Field(default=1, ge=0)

    def group(self, name: str) -> Group:
        """As the scheduler knows it; raises `Invalid`."""
        return Group(
            name,
            capacity_bytes=self.capacity,
            nodes=tuple(self.nodes),
            lease_ttl_us=_us(self.lease_ttl_s),
            max_hold_us=_us(self.max_hold_s),
            max_phase_us=_us(self.max_phase_s),
            suspendable=self.suspendable,
            prefetch=self.prefetch,
            move_timeout_us=seconds(self.move_timeout_s),
            retries=self.retries,
        )


class Agents(Section):
    """How agents are reached, and what they are shown. Without `ca` connections are not encrypted."""

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    token_file: Path | None = Field(default=None, description="a bearer token, which the agents know the hash of")
    beat_s: float = Field(default=5, gt=0, description="how often they are asked whether they are there")
    grace_s: float = Field(default=3, gt=0, description="away for so long, they close their groups")

    @model_validator(mode="after")
    def _is_whole(self) -> Agents:
        if (self.cert is None) != (self.key is None):
            raise ValueError("give both cert and key, or neither")
        if self.cert is not None and self.ca is None:
            raise ValueError("cert is shown over an encrypted connection: give ca, whose certificates agents show")
        return self


class Tls(Section):
    """Files in PEM; with `client_ca` clients must show a certificate that it signed."""

    cert: Path
    key: Path
    client_ca: Path | None = None


class Token(Section):
    """Who somebody is, by the hash of a bearer token or by the common name in a certificate, and what they may do."""

    sha256: str = Field(default="", pattern="^([0-9a-f]{64})?$")
    common_name: str = ""
    owner: str = ""
    role: Role = "job"

    @model_validator(mode="after")
    def _one_of_both(self) -> Token:
        if bool(self.sha256) == bool(self.common_name):
            raise ValueError("give either sha256, of the token, or common_name, of the certificate")
        if self.role == "job" and not self.owner:
            raise ValueError("role job needs an owner, whose jobs they are")
        return self


class Limits(Section):
    """How much is taken, before RESOURCE_EXHAUSTED is the answer."""

    message_bytes: int = Field(default=1 << 20, ge=1 << 10)
    clients: int = Field(default=20_000, gt=0, description="calls and streams open at once")
    queue: int = Field(default=20_000, gt=0, description="requests that wait")
    jobs: int = Field(default=20_000, gt=0, description="jobs that are registered")
    per_owner_requests_per_s: float = Field(default=0, ge=0, description="0: as many as they like")


class Config(Section):
    """All of it; `agent` is the section of the embedded one, which knows its keys."""

    server: Server = Server()
    groups: dict[str, GroupSection] = Field(default={})
    agents: Agents = Agents()
    tls: Tls | None = None
    tokens: tuple[Token, ...] = ()
    limits: Limits = Limits()
    agent: dict[str, object] = Field(default={})

    @model_validator(mode="after")
    def _makes_sense(self) -> Config:
        if not self.groups:
            raise ValueError("no groups: name at least one, as [groups.NAME]")
        for name, group in self.groups.items():
            check_name("group", name)
            group.group(name)
            for node, address in group.nodes.items():
                check_name("node", node)
                if address:
                    self._check_agent(f"groups.{name}.nodes.{node}", parse(address))
        self._check_reach()
        return self

    def _check_agent(self, where: str, address: Address) -> None:
        if not address.local and self.agents.ca is None and not self.server.insecure:
            raise ValueError(
                f"{where}: the agent at {address} would be reached in plain text: give agents.ca, or say insecure"
            )

    def _check_reach(self) -> None:
        if self.address.local or self.server.insecure:
            return
        where = f"server.listen {self.server.listen} can be reached from other hosts"
        if self.tls is None:
            raise ValueError(f"{where}, in plain text: give [tls], listen at 127.0.0.1 or unix:, or say insecure")
        if not self.tokens and self.tls.client_ca is None:
            raise ValueError(f"{where}, by anybody: give [[tokens]] or tls.client_ca, or say insecure")

    @property
    def address(self) -> Address:
        """Where clients connect."""
        return parse(self.server.listen)

    @property
    def addresses(self) -> dict[str, dict[str, str]]:
        """The agents' addresses by group and node, where there are any."""
        found = {name: {n: a for n, a in group.nodes.items() if a} for name, group in self.groups.items()}
        return {name: nodes for name, nodes in found.items() if nodes}

    def all_groups(self) -> tuple[Group, ...]:
        """What is scheduled."""
        return tuple(section.group(name) for name, section in self.groups.items())


def read_config(file: Path | None, *, flags: Mapping[str, Any], environment: Mapping[str, str]) -> Config:
    """The config from all sources; raises `Invalid`, in one line, for whatever is wrong with them.

    Variables of sections that are not the server's, such as those of clients on the same host, are left alone.
    """
    ours = tuple(f"{PREFIX}{section}__".upper() for section in Config.model_fields)
    said = {key: value for key, value in environment.items() if key.startswith(ours) or key == FILE_VARIABLE}
    return load(Config, file, said, flags)


def _us(value: float | None) -> int | None:
    return None if value is None else seconds(value)
