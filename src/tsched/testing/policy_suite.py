"""`check_policy`: proves a policy, or says which promise it breaks.

What it holds a policy to: it is deterministic and keeps its memory as plain data; the engine under it breaks no rule
whatever happens (the state machine, crashes included); nobody waits longer than it claims, under every
adversary of this file; and, where it says that it is `fair`, owners get device time by their weights.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tsched.model import Job
from tsched.policies import Policy
from tsched.testing.contention import Contestant, Ring, Wait
from tsched.testing.machine import machine
from tsched.testing.witness import Violation

SECOND = 1_000_000
HORIZON_US = 400 * SECOND
SHARE_TOLERANCE = 0.15


def check_policy(make_policy: Callable[[], Policy], *, examples: int = 20) -> None:
    """Raise `Violation` with the broken promise; `make_policy` makes a fresh policy each time."""
    policy = make_policy()
    if not policy.name:
        raise Violation("rule P0: a policy needs a name")
    if policy.may_starve and "starve" not in (type(policy).__doc__ or ""):
        raise Violation(f"rule P0: policy {policy.name!r} may starve, and its docstring must say so")
    _check_repeatable(make_policy)
    _check_bounds(make_policy)
    if policy.fair:
        _check_shares(make_policy)
    quiet = settings(
        max_examples=examples,
        stateful_step_count=40,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(machine(make_policy), settings=quiet)


def adversaries() -> Iterable[tuple[str, list[Contestant]]]:
    """Casts that bring out unfairness: each has its victim."""
    yield "equals", [_contestant(f"e{i}", SECOND, SECOND) for i in range(4)]
    yield (
        "long against short",
        [_contestant("long", 20 * SECOND, SECOND)] + [_contestant(f"s{i}", SECOND // 4, 1000) for i in range(4)],
    )
    yield (
        "short against long",
        [_contestant("short", SECOND // 4, 1000)] + [_contestant(f"l{i}", 8 * SECOND, 1000) for i in range(3)],
    )
    yield (
        "one against a crowd of one owner",
        [_contestant("one", SECOND, SECOND, owner="x")]
        + [_contestant(f"c{i}", SECOND, 1000, owner="crowd") for i in range(6)],
    )
    yield "many clients of one job", [_contestant("one", SECOND, 1000), _contestant("many", SECOND, 1000, clients=5)]
    yield "weights", [_contestant("light", SECOND, 1000, weight=1), _contestant("heavy", SECOND, 1000, weight=3)]
    yield (
        "liars",
        [_contestant("honest", SECOND, 1000)]
        + [_contestant(f"liar{i}", 2 * SECOND, 1000, estimate_us=1) for i in range(3)],
    )


def _contestant(
    name: str,
    length_us: int,
    think_us: int,
    owner: str = "",
    weight: float = 1,
    clients: int = 1,
    estimate_us: int | None = None,
) -> Contestant:
    job = Job(name, owner, weight, state_bytes={})
    return Contestant(job, length_us, think_us, clients, length_us if estimate_us is None else estimate_us)


def _check_repeatable(make_policy: Callable[[], Policy]) -> None:
    for _, cast in adversaries():
        first, second = (Ring(make_policy(), cast, seed=1, switch_us=1000) for _ in range(2))
        first.run(HORIZON_US // 20)
        second.run(HORIZON_US // 20)
        unbroken = Ring(make_policy(), cast, seed=1, switch_us=1000)
        unbroken.run(HORIZON_US // 10)
        if first.log != second.log:
            raise Violation(f"rule P0: policy {first.policy.name!r} decides differently when asked again")
        memory = first.policy.memory
        if json.loads(json.dumps(memory)) != memory:
            raise Violation(f"rule P0: the memory of policy {first.policy.name!r} is not plain data: {memory!r}")
        second.reload(make_policy())
        second.resume(HORIZON_US // 10)
        if (second.log, second.policy.memory) != (unbroken.log, unbroken.policy.memory):
            raise Violation(
                f"rule J2: policy {first.policy.name!r} is not itself again after a restart from a snapshot"
            )


def _check_bounds(make_policy: Callable[[], Policy]) -> None:
    for title, cast in adversaries():
        for switch_us in (0, 50_000):
            ring = Ring(make_policy(), cast, seed=7, switch_us=switch_us)
            ring.run(HORIZON_US)
            for wait in [*ring.done, *ring.waits.values()]:
                _check_wait(ring, wait, title)


def _check_wait(ring: Ring, wait: Wait, title: str) -> None:
    policy = ring.policy
    bound = policy.bound(ring.contest(wait))
    if bound is None:
        if not policy.may_starve:
            raise Violation(f"rule P0: policy {policy.name!r} claims no bound and does not say that it may starve")
    elif wait.overtaken > bound:
        raise Violation(
            f"rule P0: under {policy.name!r}, against {title!r}, a request of {wait.request.job!r} was overtaken by "
            f"{wait.overtaken} grants; it claims at most {bound}"
        )


def _check_shares(make_policy: Callable[[], Policy]) -> None:
    """Owners that always want the group get time by weight, whatever their phases' lengths and their number of jobs."""
    cast = [
        _contestant("a1", SECOND, 1, owner="a", weight=1, clients=2),
        *(_contestant(f"b{i}", SECOND // 3, 1, owner="b", weight=1, clients=2) for i in range(4)),
        _contestant("c1", 2 * SECOND, 1, owner="c", weight=2, clients=2, estimate_us=SECOND // 10),
    ]
    ring = Ring(make_policy(), cast, seed=3)
    ring.run(HORIZON_US)
    total = sum(ring.used_us.values())
    for owner, fair in {"a": 0.25, "b": 0.25, "c": 0.5}.items():
        share = ring.used_us.get(owner, 0) / total
        if abs(share - fair) > SHARE_TOLERANCE * fair:
            got = f"gave owner {owner!r} {share:.3f} of the time, not {fair}"
            raise Violation(f"rule P3: policy {ring.policy.name!r} {got}")
