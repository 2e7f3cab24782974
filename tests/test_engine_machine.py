"""The engine under attack: every installed policy, faults and crashes drawn at every step."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tsched.policies import Policy
from tsched.policies.fair_share import FairShare
from tsched.policies.fifo import Fifo
from tsched.policies.least_recently_served import LeastRecentlyServed
from tsched.policies.longest_remaining_first import LongestRemainingFirst
from tsched.policies.round_robin import RoundRobin
from tsched.policies.shortest_phase_first import ShortestPhaseFirst
from tsched.testing.machine import machine

POLICIES: list[Callable[[], Policy]] = [
    Fifo,
    ShortestPhaseFirst,
    FairShare,
    LeastRecentlyServed,
    RoundRobin,
    LongestRemainingFirst,
    lambda: Fifo(window=4, linger_s=0.01),
    lambda: FairShare(window=8, linger_s=0.005),
]


@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("make", POLICIES, ids=lambda make: getattr(make, "name", "options"))
def test_no_rule_is_broken_whatever_happens(make: Callable[[], Policy]) -> None:
    run_state_machine_as_test(machine(make), settings=settings(stateful_step_count=50))
