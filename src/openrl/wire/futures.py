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
    """With `allow_metadata_only` a client can be told first how much would come, for which it makes room."""

    request_id: str
    allow_metadata_only: bool = False


class CompleteMetadata(Message):
    """The result is there; the client asks for it again once it has room for so many bytes."""

    response_payload_size: int
    status: Literal["complete_metadata"] = "complete_metadata"


class Pending(Message):
    """Sent with status 408: ask again. The reason is shown to the user after a while."""

    queue_state: Literal["active", "paused_capacity", "paused_rate_limit"] = "active"
    queue_state_reason: str | None = None


class Failed(Message):
    """The work was tried, or refused, and will not be tried again: sent with status 200."""

    error: str
    category: Literal["user", "server", "unknown"] = "unknown"


class SamplingTarget(Message):
    """One client of a sampling session; those that joined it have numbers from 1."""

    sampling_session_id: str
    cloned_sampler_id: int = 0


class RetrieveFutures(Message):
    """What was answered after `prev_cursor`. A `timeout` of 0 waits for nothing; None waits as long as a poll does."""

    target: SamplingTarget
    prev_cursor: int = 0
    timeout: float | None = None


class Completion(Message):
    request_id: str
    state: Literal["finished", "failed"]


class Completions(Message):
    completions: list[Completion]
    cursor: int


class CancelFuture(Message):
    """One request, or in some versions a list of them."""

    request_id: str | None = None
    request_ids: Some[str] = []
