"""What to do: the engine's answers, in the imperative.

Every change that the engine makes to its own state by choice is a command too (`Select`, `Hold`, `Suspend`,
`Quarantine`): a log of events and commands is enough to rebuild the state without deciding again. A driver
acts on Grant, Refuse, Revoke, Suspend, Park, Restore, Discard and WakeAt, and only records the others.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct


class _Command(Struct, frozen=True, tag=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    pass


class Grant(_Command, frozen=True):
    """The lease is the client's, exclusive on every group of `tokens` (group to fencing token).

    `restored`: state had to be brought back for this turn. A lease that the client holds already is granted
    again with the same tokens when it re-attaches, and with new ones when it resumes after `Suspend`.
    `backfills`: the reservation that it was let in before.
    """

    lease: int
    client: str
    request: int
    job: str
    tokens: Mapping[str, int]
    phase: str = ""
    waited_us: int = 0
    restored: bool = False
    backfills: tuple[str, int] | None = None


class Refuse(_Command, frozen=True):
    """The request is not, and will not be, granted. `code` is the rule, `detail` the text for its author."""

    client: str
    request: int
    code: str
    detail: str


class Ignore(_Command, frozen=True):
    """The event names nothing that is there any more; nothing changed."""

    reason: str


class Select(_Command, frozen=True):
    """This request is next on the group: for it states are moved, and nobody else is granted but by backfill."""

    group: str
    client: str
    request: int


class Move(_Command, frozen=True):
    """One movement of one job's state, on each of `nodes` in parallel, fenced by `token`.

    The driver answers once for each node within `timeout_us`; asked again with the same `op`, it answers with
    what became of that operation, and does it only if it was never done.
    """

    op: int
    group: str
    job: str
    token: int
    nodes: tuple[str, ...]
    timeout_us: int
    size_bytes: int = 0


class Park(Move, frozen=True):
    """Move the state to host memory, whatever the job is doing; answered by Parked once its memory is seen free."""


class Restore(Move, frozen=True):
    """Bring the state back to the devices; answered by Restored."""


class Discard(Move, frozen=True):
    """End what holds the state and drop it; answered by Discarded once its memory is seen free."""


class Revoke(_Command, frozen=True):
    """The lease ended against its holder's will, on `groups`."""

    lease: int
    groups: tuple[str, ...]
    reason: str


class Suspend(_Command, frozen=True):
    """The lease's turn is interrupted: its clock stops and it is granted again, with new tokens, later."""

    lease: int


class Hold(_Command, frozen=True):
    """Keep the group free for this job until then: it is expected back before a switch would pay."""

    group: str
    job: str
    until_us: int


class Quarantine(_Command, frozen=True):
    """The job gets no more turns until it is readmitted."""

    job: str
    reason: str


class WakeAt(_Command, frozen=True):
    """Send `Woke` at this time; replaces the earlier one."""

    when_us: int


Command = Grant | Refuse | Ignore | Select | Park | Restore | Discard | Revoke | Suspend | Hold | Quarantine | WakeAt
