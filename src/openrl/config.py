"""The server's configuration: one TOML file, all of whose keys are known.

    host = "127.0.0.1"
    port = 8600
    data = "~/.local/share/openrl"     # the store, checkpoints and snapshots
    threads = 2                        # of the worker's arithmetic

    [models.mine]
    path = "/models/mine"              # a local folder, or the name of one on the hub

    [models."Qwen/Qwen3-8B"]
    alias_of = "openrl/tiny"           # so that a recipe that asks for the one gets the other

    [limits]
    rank = 64

    [grace]
    session_s = 900                    # until the memory of a session that sends no heartbeats is freed

    [durability]
    work_s = 5                         # of work at most are done again after a crash

Flags win over the environment (OPENRL_PORT, OPENRL_LIMITS__RANK, ...), that over the file, that over the defaults.
"""

from __future__ import annotations

import ipaddress
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from openrl.errors import OpenRLError
from openrl.wire.limits import Limits

PREFIX = "OPENRL_"
FILE_VARIABLE = "OPENRL_CONFIG"


class ConfigInvalid(OpenRLError, ValueError):
    """The configuration says something that cannot be; the text names the key and its source."""


class Section(BaseModel):
    """A part of the file; a key that is not known is a mistake."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ModelSource(Section):
    """Where a base model comes from: a folder or hub name, or another entry or built-in model."""

    path: str | None = None
    alias_of: str | None = None

    @model_validator(mode="after")
    def one_of_both(self) -> ModelSource:
        if (self.path is None) == (self.alias_of is None):
            raise ValueError("give either path or alias_of")
        return self


class Grace(Section):
    """How long what nobody seems to need is kept."""

    session_s: float = Field(default=900, gt=0, description="memory of a session without heartbeats")
    finished_s: float = Field(default=30, gt=0, description="memory of a session that has ended")
    result_s: float = Field(default=86_400, gt=0, description="results, fetched or not")
    sampler_s: float = Field(default=86_400, gt=0, description="snapshots without a name, unused")
    url_s: float = Field(default=3600, gt=0, description="addresses for downloads")


class Durability(Section):
    """How much work a crash may cost: a model's state is written after so many requests or seconds of work."""

    requests: int = Field(default=64, gt=0)
    work_s: float = Field(default=5.0, gt=0)


class Config(Section):
    """All that `openrl serve` can be told."""

    host: str = "127.0.0.1"
    port: int = Field(default=8600, ge=0, le=65_535)
    data: Path = Path("~/.local/share/openrl")
    threads: int = Field(default=0, ge=0, description="of the worker; 0 leaves it to torch")
    poll_s: float = Field(default=25.0, gt=0, le=40, description="clients give up after 45")
    log_level: str = Field(default="info", pattern="^(debug|info|warning|error)$")
    models: dict[str, ModelSource] = {}
    limits: Limits = Limits()
    grace: Grace = Grace()
    durability: Durability = Durability()

    @property
    def folder(self) -> Path:
        """The data folder, absolute."""
        return self.data.expanduser().absolute()

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def load(file: Path | None, environment: Mapping[str, str], flags: Mapping[str, Any]) -> Config:
    """The configuration from all sources; `flags` that are None were not given.

    Raises:
        ConfigInvalid: a source cannot be read, or has a key or value that cannot be.
    """
    if file is None and FILE_VARIABLE in environment:
        file = Path(environment[FILE_VARIABLE])
    values = {} if file is None else read(file)
    source = "the flags and environment" if file is None else str(file)
    overlay(values, from_environment(environment))
    overlay(values, {key: value for key, value in flags.items() if value is not None})
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        raise ConfigInvalid(f"{source}: {complaint(error)}") from error


def read(file: Path) -> dict[str, Any]:
    """The file's content, unchecked."""
    try:
        return tomllib.loads(file.read_text("utf-8-sig"))
    except OSError as error:
        raise ConfigInvalid(f"{file}: cannot be read: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigInvalid(f"{file}: not TOML: {error}") from error


def from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    """OPENRL_PORT as `port`, OPENRL_LIMITS__RANK as `limits.rank`."""
    values: dict[str, Any] = {}
    for name, value in sorted(environment.items()):
        if name.startswith(PREFIX) and name != FILE_VARIABLE:
            section, _, key = name.removeprefix(PREFIX).lower().partition("__")
            overlay(values, {section: {key: value}} if key else {section: value})
    return values


def overlay(values: dict[str, Any], others: Mapping[str, Any]) -> None:
    """Put `others` over `values`, section by section."""
    for key, value in others.items():
        if isinstance(value, Mapping) and isinstance(values.get(key), dict):
            overlay(values[key], value)
        else:
            values[key] = value


def complaint(error: ValidationError) -> str:
    """The first thing that is wrong, and where."""
    first = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"]) or "the whole"
    text = "is not a known key" if first["type"] == "extra_forbidden" else f"{first['msg']} (it is {first['input']!r})"
    return f"{where}: {text}"
