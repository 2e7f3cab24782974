"""A request for a turn, and the lease that it becomes."""

from __future__ import annotations

from msgspec import Struct, field

Key = tuple[str, int]


class Request(Struct, gc=False, eq=False):
    """One client's wish for `groups`, all at once. `skips` counts who was served out of rank while this one was first.

    `reserved_seq` orders the requests that reserve groups as they come free (rule E9); `resumes` is the lease that
    continues when a suspended turn is granted again (rule E14).
    """

    key: Key
    client: str
    number: int
    job: str
    owner: str
    weight_milli: int
    groups: tuple[str, ...]
    phase: str
    estimate_us: int
    remaining_us: int | None
    arrived_us: int
    seq: int
    within: int | None = None
    ttl_us: int | None = None
    attached: bool = True
    skips: int = 0
    reserved_seq: int | None = None
    overrun: bool = False
    resumes: int | None = None


class Lease(Struct, gc=False, eq=False):
    """A granted turn: the groups still held and their fencing tokens.

    `since_us` is when the turn began, or resumed; `ran_us` what it ran before it was suspended. `due_us` is when it
    ends unless renewed, `ends_us` when it ends even so; without `timed` neither can be, nor a suspension.
    `backfills` names the reservation that it was let in before.
    """

    id: int
    request: Request
    tokens: dict[str, int]
    granted_us: int
    since_us: int
    due_us: int | None = None
    ends_us: int | None = None
    ran_us: int = 0
    attached: bool = True
    suspended: bool = False
    nested: Key | None = None
    backfills: Key | None = None
    restored: bool = False
    timed: bool = False
    ranks: dict[str, int] = field(default_factory=dict)

    @property
    def job(self) -> str:
        return self.request.job
