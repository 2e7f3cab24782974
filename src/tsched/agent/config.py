"""What `tsched agent` can be told: section [agent] of one TOML file, which nothing else is in.

    [agent]
    listen = "0.0.0.0:9001"                # or unix:/run/tsched-agent.sock
    node = "0"                             # what the orchestrator calls this host
    state = "/var/lib/tsched/agent.json"   # what must outlive the agent: whose processes are whose, and tokens
    backend = "process"                    # what moves states, where a group names no other
    groups.samplers.backend = "fake"
    orchestrator.token_sha256 = "9f86d0…"  # orders come with this bearer token; from anybody without it
    orchestrator.common_name = "tsched"    # or with a certificate of this name

    [agent.tls]
    cert = "agent.pem"
    key = "agent.key"
    client_ca = "ca.pem"                   # then clients show certificates

Flags win over the environment (TSCHED_AGENT__LISTEN), that over the file, that over what stands here.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import Field, field_validator, model_validator

from tsched.config import FILE_VARIABLE, Section, load
from tsched.rpc.address import parse
from tsched.rpc.limits import MAX_MESSAGE_BYTES, check_name

_OURS = "TSCHED_AGENT__"


class GroupSection(Section):
    """What moves the states of one group: the name of a backend, with options."""

    backend: str


class Tls(Section):
    """Files in PEM; with `client_ca` clients must show a certificate that it signed."""

    cert: Path
    key: Path
    client_ca: Path | None = None


class Orchestrator(Section):
    """Who may give orders. With neither, everybody who can connect."""

    token_sha256: str = Field(default="", pattern="^([0-9a-f]{64})?$")
    common_name: str = ""


class Limits(Section):
    """How much is taken, before RESOURCE_EXHAUSTED is the answer."""

    message_bytes: int = Field(default=MAX_MESSAGE_BYTES, ge=1 << 10)
    operations: int = Field(default=1024, gt=0, description="under way at once; as many ended ones are remembered")
    workloads: int = Field(default=1024, gt=0, description="streams of processes that park themselves")
    move_timeout_s: float = Field(default=600, gt=0, description="for a move whose protocol sets no deadline")


class Config(Section):
    """One agent."""

    listen: str = "127.0.0.1:9001"
    node: str = "0"
    backend: str = "process"
    groups: dict[str, GroupSection] = Field(default_factory=dict)
    state: str = Field(default="tsched-agent.json", description="a file; empty: nothing outlives the agent")
    insecure: bool = Field(default=False, description="plain text also where other hosts can listen")
    orchestrator: Orchestrator = Orchestrator()
    tls: Tls | None = None
    limits: Limits = Limits()

    @field_validator("listen")
    @classmethod
    def _is_address(cls, value: str) -> str:
        parse(value)
        return value

    @field_validator("node")
    @classmethod
    def _is_name(cls, value: str) -> str:
        check_name("node", value)
        return value

    @model_validator(mode="after")
    def _is_safe(self) -> Self:
        known = bool(self.orchestrator.token_sha256 or self.orchestrator.common_name)
        authority = self.tls is not None and self.tls.client_ca is not None
        if self.orchestrator.common_name and not authority:
            raise ValueError("orchestrator.common_name is of a certificate: give tls.client_ca, which vouches for it")
        if parse(self.listen).local or self.insecure:
            return self
        where = f"listen {self.listen} can be reached from other hosts"
        if self.tls is None:
            raise ValueError(f"{where}, in plain text: give [agent.tls], listen at 127.0.0.1 or unix:, or say insecure")
        if not known and not authority:
            raise ValueError(f"{where}, and takes orders from anybody: give orchestrator, or say insecure")
        return self


class _File(Section):
    agent: Config = Config()


def read_config(
    file: Path | None = None,
    *,
    flags: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Config:
    """The config from all sources; raises `Invalid`, in one line, for whatever is wrong with them."""
    said = environment or {}
    ours = {key: value for key, value in said.items() if key.startswith(_OURS) or key == FILE_VARIABLE}
    return load(_File, file, ours, {"agent": dict(flags or {})}).agent
