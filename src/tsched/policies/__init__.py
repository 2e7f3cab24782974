"""Who is next: the page that a policy's author reads.

A policy gives every waiting request a place in line. Requests stand in *flows* (one a request, a job or an owner, as
`flow` says); within a flow they keep their order of arrival, and among flows the smallest `rank` is next,
ties going to the earlier arrival. A rank is an integer that does not change while its request heads the flow,
but for the moments when the flow is charged: at a grant (`granted`) and at its end (`released`).

A policy is pure: no clock, no randomness, no I/O; the same calls give the same answers. What it remembers is in
`memory`, plain JSON-able data by group, which the engine keeps in its snapshots. Every policy claims in its docstring
what order it keeps and what bound on waiting follows from it, as `bound` computes it, or sets `may_starve`.

Two options, common to all policies (rules P7 and P8):

- `window` (1 to 8): look at the first few by rank and take one whose job is resident, to save a switch. Nobody is
  passed over more than `window` times, so every bound grows by `window`.
- `linger_us`: after a turn, keep the group for the same job for so long, if it usually is back before a switch
  would pay. At most once for each head of the line, so a bound of n becomes 2 n + 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct

from tsched.errors import Invalid
from tsched.residency import Place

MAX_WINDOW = 8


class Waiter(Protocol):
    """What a policy may know of a waiting request (`tsched.turns.Request`)."""

    @property
    def job(self) -> str: ...
    @property
    def owner(self) -> str: ...
    @property
    def weight_milli(self) -> int: ...
    @property
    def seq(self) -> int: ...
    @property
    def arrived_us(self) -> int: ...
    @property
    def estimate_us(self) -> int: ...
    @property
    def remaining_us(self) -> int | None: ...
    @property
    def skips(self) -> int: ...


class Contest(Struct, frozen=True):
    """One wait, as measured: what `Policy.bound` may be a function of.

    `ahead` requests waited or held the group when it arrived, `in_flow` of those waiting in its own flow; `jobs` others
    exist; `arrivals` are the (arrival, estimate) of the requests that came during the wait; charges are the
    smallest and largest phases, estimated or real, of the run, and weights its extremes.
    """

    arrived_us: int
    estimate_us: int
    ahead: int
    in_flow: int
    jobs: int
    arrivals: Sequence[tuple[int, int]]
    min_charge_us: int
    max_charge_us: int
    min_weight_milli: int
    max_weight_milli: int


class Policy:
    """First come, first served within a flow; subclasses say which flow and which rank."""

    name: str = ""
    may_starve: bool = False
    fair: bool = False

    def __init__(self, window: int = 1, linger_s: float = 0.0) -> None:
        if not 1 <= window <= MAX_WINDOW:
            raise Invalid(f"policy {self.name!r}: window must be 1 to {MAX_WINDOW}, not {window}")
        if not 0 <= linger_s < 1e9:
            raise Invalid(f"policy {self.name!r}: linger_s must be a number of seconds >= 0, not {linger_s}")
        self.window = window
        self.linger_us = round(linger_s * 1_000_000)
        self.memory: dict[str, dict[str, int]] = {}

    def flow(self, request: Waiter) -> str | None:
        """The flow that the request stands in; None when it stands alone."""
        return None

    def rank(self, request: Waiter, group: str) -> int:
        """The place of a flow's first request in line for this group; smaller is sooner."""
        raise NotImplementedError

    def granted(self, request: Waiter, group: str, switch_us: int) -> None:
        """The request's turn begins; `switch_us` is how long the group stood idle to bring its state in."""

    def released(self, request: Waiter, group: str, length_us: int) -> None:
        """The turn that was expected to take `request.estimate_us` took `length_us`."""

    def choose(self, first: Sequence[Waiter], resident: Callable[[Waiter], bool]) -> int:
        """The index of the one to serve among the first by rank (rule P7)."""
        for index, request in enumerate(first):
            if resident(request):
                return index
            if request.skips >= self.window:
                break
        return 0

    def eviction_order(self, resident: list[Place], due: Callable[[Place], int]) -> list[Place]:
        """Whom to evict first: by default who is due last (rule R6)."""
        return sorted(resident, key=lambda place: (-due(place), place.job))

    def bound(self, contest: Contest) -> int | None:
        """The most grants by which this wait may be overtaken, or None if it may starve."""
        return None

    def slack(self, bound: int) -> int:
        """`bound`, widened by the options in use."""
        if self.linger_us:
            bound = 2 * bound + 1
        return bound + (self.window if self.window > 1 else 0)

    def _memory(self, group: str) -> dict[str, int]:
        return self.memory.setdefault(group, {})
