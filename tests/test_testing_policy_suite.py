"""`check_policy` accepts every installed policy and catches policies that are broken on purpose."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from tsched.policies import Contest, Policy, Waiter
from tsched.policies.fair_share import FairShare
from tsched.policies.fifo import Fifo
from tsched.policies.least_recently_served import LeastRecentlyServed
from tsched.policies.longest_remaining_first import LongestRemainingFirst
from tsched.policies.round_robin import RoundRobin
from tsched.policies.shortest_phase_first import ShortestPhaseFirst
from tsched.testing.policy_suite import check_policy
from tsched.testing.witness import Violation

GOOD: list[Callable[[], Policy]] = [
    Fifo,
    ShortestPhaseFirst,
    FairShare,
    LeastRecentlyServed,
    RoundRobin,
    LongestRemainingFirst,
    lambda: Fifo(window=4),
    lambda: Fifo(linger_s=0.2),
    lambda: RoundRobin(window=8, linger_s=0.5),
    lambda: ShortestPhaseFirst(alpha=2, window=2),
]


@pytest.mark.parametrize("make", GOOD, ids=lambda make: getattr(make, "name", "options"))
def test_what_the_installed_policies_claim_is_true(make: Callable[[], Policy]) -> None:
    check_policy(make, examples=5)


class Starving(Fifo):
    """Shortest first without ageing, claiming a bound all the same."""

    def rank(self, request: Waiter, group: str) -> int:
        return request.estimate_us


class LastComeFirst(Fifo):
    """The latest arrival first."""

    def rank(self, request: Waiter, group: str) -> int:
        return -request.seq


class Favourite(FairShare):
    """Charges one owner a tenth."""

    def granted(self, request: Waiter, group: str, switch_us: int) -> None:
        super().granted(request, group, switch_us)
        if request.owner == "a":
            self._memory(group)["a"] -= request.estimate_us * 9 // 10

    def bound(self, contest: Contest) -> int:
        return 1_000_000


class Impatient(Fifo):
    """Takes a resident job however often others were passed over."""

    def choose(self, first: Sequence[Waiter], resident: Callable[[Waiter], bool]) -> int:
        return next((index for index, request in enumerate(first) if resident(request)), 0)


class Silent(LongestRemainingFirst):
    """Claims nothing."""

    may_starve = False


class Unsaid(LongestRemainingFirst):
    """Order: the most work left."""


class Fickle(Fifo):
    """Remembers across runs."""

    calls = 0

    def rank(self, request: Waiter, group: str) -> int:
        Fickle.calls += 1
        return Fickle.calls * 7919 % 101


class Unsaved(Fifo):
    """Keeps what cannot be written down."""

    def granted(self, request: Waiter, group: str, switch_us: int) -> None:
        self.memory[group] = {request.job: float("nan")}  # type: ignore[dict-item]


class Amnesiac(Fifo):
    """Keeps its memory where no snapshot finds it."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def rank(self, request: Waiter, group: str) -> int:
        return request.seq

    def granted(self, request: Waiter, group: str, switch_us: int) -> None:
        self.memory[group] = {"count": self.count}
        self.count += 1


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (Starving, "P0"),
        (LastComeFirst, "P0"),
        (Favourite, "P3"),
        (lambda: Impatient(window=4), "P0"),
        (Silent, "P0"),
        (Unsaid, "P0"),
        (Fickle, "P0"),
        (Unsaved, "P0"),
        (Amnesiac, "J2"),
    ],
)
def test_a_policy_that_breaks_its_promise_is_caught(make: Callable[[], Policy], rule: str) -> None:
    with pytest.raises(Violation, match=f"rule ({rule})"):
        check_policy(make, examples=60)
