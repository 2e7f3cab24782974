"""What the store holds, one class a table. Times are microseconds since the epoch; plain values without behaviour."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct, field

from openrl.work import ModelSpec

CheckpointKind = Literal["training", "sampler", "external"]
RequestState = Literal["waiting", "done", "failed", "expired"]


class Key(Struct, frozen=True):
    """An API key, by the hash of it; the key itself is nowhere kept."""

    key_hash: str
    key_id: str
    owner: str
    name: str
    created_us: int
    revoked_us: int | None = None


class Session(Struct, frozen=True):
    """One run of a client program."""

    session_id: str
    owner: str
    created_us: int
    last_seen_us: int
    tags: tuple[str, ...] = ()
    user_metadata: dict[str, Any] = field(default_factory=dict)
    sdk_version: str = ""
    display_name: str | None = None
    project_id: str | None = None
    ended_us: int | None = None
    end_reason: str | None = None
    end_detail: str | None = None


class Model(Struct, frozen=True):
    """A model in training. `source` is the folder that it was loaded from, "" if it was made new.

    `durable_folder` holds its state after unit `durable_seq`; `attempts` and `recoveries` are the queue's.
    """

    model_id: str
    session_id: str
    owner: str
    spec: ModelSpec
    created_us: int
    last_request_us: int
    source: str = ""
    source_path: str | None = None
    source_optimizer: bool = False
    user_metadata: dict[str, Any] | None = None
    durable_seq: int = -1
    durable_folder: str = ""
    attempts: int = 0
    recoveries: int = 0
    lost: str | None = None
    lost_category: str | None = None


class Request(Struct, frozen=True):
    """One request and its answer; `seq` counts within its model, or its sampler."""

    request_id: str
    owner: str
    seq: int
    kind: str
    digest: bytes
    created_us: int
    model_id: str | None = None
    sampler_id: str | None = None
    mutates: bool = False
    settles: bool = False
    seed: int | None = None
    size: int = 1
    state: RequestState = "waiting"
    result_type: str | None = None
    error: str | None = None
    category: str | None = None
    answered_us: int | None = None
    attempts: int = 0


class Payload(Struct, frozen=True):
    """What a request asks for, in the form in which `kind` says it came."""

    request_id: str
    body: bytes


class Result(Struct, frozen=True):
    """The answer to a request that was carried out."""

    request_id: str
    body: bytes


class Sampler(Struct, frozen=True):
    """A sampling session: a base model, with `folder` a snapshot of weights on it."""

    sampler_id: str
    session_id: str
    owner: str
    base_model: str
    created_us: int
    last_used_us: int
    folder: str = ""
    model_path: str | None = None
    ephemeral: bool = False
    freed: bool = False


class Checkpoint(Struct, frozen=True):
    """Saved weights under a path; `folder` holds them and is never written again."""

    path: str
    model_id: str
    owner: str
    kind: CheckpointKind
    name: str
    folder: str
    size_bytes: int
    created_us: int
    spec: ModelSpec
    expires_us: int | None = None
    public: bool = False
    user_metadata: dict[str, Any] | None = None


class Once(Struct, frozen=True):
    """What was answered to a call that carries a key of its own, so that a retry of it gets the same."""

    once_key: str
    answer: str
    created_us: int


Row = Key | Session | Model | Request | Payload | Result | Sampler | Checkpoint | Once
