"""Messages about results that are not there yet."""

from __future__ import annotations

from typing import Literal

from openrl.wire.message import Message, Some


class Promise(Message):
    """What is answered at once to a request whose result is fetched later; `sample_sequence_ids` has one a sample."""

    request_id: str
    model_id: str | None = None
    sample_sequence_ids: list[str] | None = None


class RetrieveFuture(Message):
    request_id: str
    allow_metadata_only: bool = False


class Pending(Message):
    """Sent with status 408: ask again. The reason is shown to the user after a while."""

    queue_state: Literal["active", "paused_capacity", "paused_rate_limit"] = "active"
    queue_state_reason: str | None = None


class Failed(Message):
    """The work was tried, or refused, and will not be tried again: sent with status 200."""

    error: str
    category: Literal["user", "server", "unknown"] = "unknown"


class CancelFuture(Message):
    """One request, or in some versions a list of them."""

    request_id: str | None = None
    request_ids: Some[str] = []
