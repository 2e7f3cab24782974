"""What happened: the engine's input, in the past tense.

`client` and `request` name a request together: a repeated one is the same request. `lease` is the number that
`Grant` gave; `op` the number of a `Park`, `Restore` or `Discard`, answered once for each of its nodes.
"""

from __future__ import annotations

from msgspec import Struct

from tsched.model import Job


class _Event(Struct, frozen=True, tag=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    pass


class JobAdded(_Event, frozen=True):
    job: Job


class JobUpdated(_Event, frozen=True):
    """The job's owner, weight or sizes changed."""

    job: Job


class JobLeft(_Event, frozen=True):
    """The job is done: its state may be dropped everywhere."""

    job: str


class JobLost(_Event, frozen=True):
    """The job's processes are gone, or were declared so."""

    job: str
    reason: str = ""


class JobReadmitted(_Event, frozen=True):
    """An operator lifted the job's quarantine."""

    job: str


class PhaseRequested(_Event, frozen=True):
    """A client wants `groups`, all at once, for one phase; `within` names the lease that it holds meanwhile."""

    client: str
    request: int
    job: str
    groups: tuple[str, ...]
    phase: str = ""
    estimate_us: int | None = None
    remaining_us: int | None = None
    within: int | None = None
    ttl_us: int | None = None


class RequestCancelled(_Event, frozen=True):
    client: str
    request: int


class PhaseYielded(_Event, frozen=True):
    """The holder gives back `groups` of its lease, or all of them when empty."""

    lease: int
    groups: tuple[str, ...] = ()


class LeaseRenewed(_Event, frozen=True):
    lease: int


class Parked(_Event, frozen=True):
    """The state is in host memory and its device memory was seen to be free."""

    op: int
    node: str


class Restored(_Event, frozen=True):
    op: int
    node: str


class Discarded(_Event, frozen=True):
    """The state is nowhere any more, the processes that held it are gone, and its memory was seen to be free."""

    op: int
    node: str


class MoveFailed(_Event, frozen=True):
    """A park, restore or discard did not succeed in time; what is in memory is unknown."""

    op: int
    node: str
    reason: str = ""


class NodeLost(_Event, frozen=True):
    """A node cannot be reached: its group takes no new turns until it returns."""

    group: str
    node: str
    reason: str = ""


class NodeReturned(_Event, frozen=True):
    group: str
    node: str


class EvictionForced(_Event, frozen=True):
    """An operator vouches that nothing of this job is left on the group's devices or hosts."""

    group: str
    job: str


class Restarted(_Event, frozen=True):
    """The scheduler started again from its log: clients must re-attach, moves under way are asked after."""


class Woke(_Event, frozen=True):
    """The time that `WakeAt` named has come."""


Event = (
    JobAdded
    | JobUpdated
    | JobLeft
    | JobLost
    | JobReadmitted
    | PhaseRequested
    | RequestCancelled
    | PhaseYielded
    | LeaseRenewed
    | Parked
    | Restored
    | Discarded
    | MoveFailed
    | NodeLost
    | NodeReturned
    | EvictionForced
    | Restarted
    | Woke
)
