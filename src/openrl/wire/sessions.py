"""Messages about sessions: one run of a client program each, which heart-beats as long as it lives."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from openrl.wire.message import Message, Metadata, Some


class CreateSession(Message):
    tags: Some[str] = []
    user_metadata: dict[str, Any] | None = None
    sdk_version: str = ""
    project_id: str | None = None
    display_name: str | None = None


class SessionCreated(Message):
    session_id: str
    info_message: str | None = None
    warning_message: str | None = None
    error_message: str | None = None
    type: Literal["create_session"] = "create_session"


class Heartbeat(Message):
    session_id: str


class HeartbeatSeen(Message):
    type: Literal["session_heartbeat"] = "session_heartbeat"


class FinishReason(Message):
    type: Literal["success", "errored", "interrupted"] = "success"


class FinishSession(Message):
    reason: FinishReason = FinishReason()
    detail: str | None = None


class TelemetryTaken(Message):
    status: Literal["accepted"] = "accepted"


class SessionList(Message):
    sessions: list[str]


class Session(Message):
    training_run_ids: list[str]
    sampler_ids: list[str]
    user_metadata: Metadata | None = None
    display_name: str | None = None


class AssignProject(Message):
    project_id: str


class SearchCursor(Message):
    """The last session of the page before."""

    last_created_at: datetime
    last_session_id: str


class StatusQuery(Message):
    type: Literal["active", "cancelled", "failed", "client_finished"]
    reasons: Some[str] | None = None


class SearchSessions(Message):
    """Newest first. A session matches if `session_id` or `display_name` does, and all of the rest."""

    session_id: str | None = None
    project_ids: Some[str] | None = None
    user_metadata: Metadata = {}
    display_name: str | None = None
    statuses: Some[StatusQuery] | None = None
    limit: int = Field(default=50, ge=1, le=200)
    cursor: SearchCursor | None = None


class SessionSummary(Message):
    session_id: str
    created_at: datetime
    owner: str
    project_id: str
    checkpoints_count: int
    status: dict[str, Any] | None = None
    display_name: str | None = None
    user_metadata: Metadata | None = None
    checkpoint_storage_bytes: int | None = None


class SessionsFound(Message):
    sessions: list[SessionSummary]
    next_cursor: SearchCursor | None = None


class TraceExport(Message):
    """Where the trace of a session's work is."""

    status: Literal["pending", "ready", "failed"]
    url: str | None = None
    error: str | None = None
