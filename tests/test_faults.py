"""Faults are drawn by (seed, job, n), and their table says exactly what a driver of the fake backend sees."""

from __future__ import annotations

from collections import Counter

import anyio
import pytest
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from tsched.backends import Order
from tsched.backends.fake import FakeBackend
from tsched.backends.moves import carry_out
from tsched.costs import FixedTable, MoveKind
from tsched.errors import Invalid
from tsched.events import Event, JobLost, MoveFailed, Parked
from tsched.faults import DIED, TIMED_OUT, Fault, FaultRates, Faults, Outcome, Result, answer, outcome
from tsched.testing import run_virtual

ONLY = {fault: FaultRates(**{fault.value: 1.0}) for fault in Fault if fault is not Fault.NONE} | {
    Fault.NONE: FaultRates()
}

kinds: st.SearchStrategy[MoveKind] = st.sampled_from(["park", "restore", "discard"])
durations = st.one_of(st.integers(0, 8), st.integers(0, 10**9))


async def _prepared(kind: MoveKind, fault: Fault, cost_us: int) -> FakeBackend:
    """A backend on which the next move meets this fault, with the state where that move expects it."""
    backend = FakeBackend(costs=FixedTable(default_us=cost_us))
    backend.allocate("g", "0", "a", 100)
    if kind == "restore":
        await backend.park(Order(1, "g", "0", "a", 1))
    backend._faults = Faults(0, ONLY[fault])
    return backend


async def _drive(kind: MoveKind, fault: Fault, cost_us: int, timeout_us: int) -> tuple[int, Event]:
    backend = await _prepared(kind, fault, cost_us)
    began = anyio.current_time()
    event = await carry_out(backend, kind, Order(2, "g", "0", "a", 1), timeout_us)
    return round((anyio.current_time() - began) * 1_000_000), event


def _predicted(kind: MoveKind, fault: Fault, cost_us: int, timeout_us: int) -> tuple[int, Event]:
    delay_us, result, reason = outcome(kind, fault, cost_us, timeout_us)
    return delay_us, answer(kind, 2, "0", "a", result, reason)


@given(kind=kinds, fault=st.sampled_from(Fault), cost_us=durations, timeout_us=durations.map(lambda us: us + 1))
def test_a_driver_of_the_fake_backend_answers_what_the_table_says_and_when(
    kind: MoveKind, fault: Fault, cost_us: int, timeout_us: int
) -> None:
    cost_us = 0 if kind == "discard" else cost_us
    assert run_virtual(_drive, kind, fault, cost_us, timeout_us) == _predicted(kind, fault, cost_us, timeout_us)


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("kind", ["park", "restore", "discard"])
@pytest.mark.parametrize("timeout_us", [500, 2_500, 50_000])
def test_it_does_so_under_trio_too(kind: MoveKind, fault: Fault, timeout_us: int) -> None:
    cost_us = 0 if kind == "discard" else 1_000
    clock = trio.testing.MockClock(autojump_threshold=0)
    seen = trio.run(_drive, kind, fault, cost_us, timeout_us, clock=clock)
    assert seen == _predicted(kind, fault, cost_us, timeout_us)


@given(
    moves=st.lists(st.tuples(st.sampled_from(Fault), st.integers(0, 50)), min_size=1, max_size=8),
    timeout_us=st.integers(1, 60),
    gap_us=st.integers(0, 200),
)
def test_what_went_before_never_changes_what_a_retry_meets(
    moves: list[tuple[Fault, int]], timeout_us: int, gap_us: int
) -> None:
    """A park that failed, late ones and lies included, leaves nothing behind that the next try would see."""

    async def drive() -> None:
        backend = FakeBackend()
        backend.allocate("g", "0", "a", 100)
        for op, (fault, cost_us) in enumerate(moves):
            backend._costs, backend._faults = FixedTable(default_us=cost_us), Faults(0, ONLY[fault])
            began = anyio.current_time()
            event = await carry_out(backend, "park", Order(op, "g", "0", "a", 1), timeout_us)
            expected = outcome("park", fault, cost_us, timeout_us)
            assert round((anyio.current_time() - began) * 1_000_000) == expected.delay_us
            assert event == answer("park", op, "0", "a", expected.result, expected.reason)
            if expected.result is Result.LOST:
                return
            await anyio.sleep(gap_us / 1_000_000)

    run_virtual(drive)


def test_faults_on_nodes_that_move_at_once_do_not_disturb_each_other() -> None:
    faults = [Fault.NONE, Fault.LIE, Fault.LATE, Fault.FAIL, Fault.HANG, Fault.LOSE, Fault.NONE]
    rates = FaultRates(fail=0.2, hang=0.2, lie=0.2, late=0.2, lose=0.1)
    drawn = Faults(3, rates)
    seen: dict[str, tuple[int, Event]] = {}

    async def one(backend: FakeBackend, node: str, number: int) -> None:
        event = await carry_out(backend, "park", Order(1, "g", node, "a", 1, 10, number), 1_000)
        seen[node] = (round(anyio.current_time() * 1_000_000), event)

    async def drive() -> None:
        backend = FakeBackend(costs=FixedTable(default_us=100), faults=drawn)
        async with anyio.create_task_group() as tasks:
            for number in range(len(faults)):
                tasks.start_soon(one, backend, str(number), number)

    run_virtual(drive)
    for number in range(len(faults)):
        expected = outcome("park", drawn.draw("a", number), 100, 1_000)
        assert seen[str(number)] == (
            expected.delay_us,
            answer("park", 1, str(number), "a", expected.result, expected.reason),
        )
    assert len({drawn.draw("a", number) for number in range(len(faults))}) > 2


@given(kind=kinds, fault=st.sampled_from(Fault), cost_us=durations, timeout_us=durations.map(lambda us: us + 1))
def test_an_answer_comes_at_the_timeout_at_the_latest_and_never_at_once(
    kind: MoveKind, fault: Fault, cost_us: int, timeout_us: int
) -> None:
    assert 1 <= outcome(kind, fault, cost_us, timeout_us).delay_us <= timeout_us


def test_a_tie_with_the_timeout_is_a_failure() -> None:
    assert outcome("park", Fault.NONE, 10, 10) == Outcome(10, Result.FAILED, TIMED_OUT)
    assert outcome("park", Fault.NONE, 9, 10) == Outcome(9, Result.DONE)


def test_a_process_that_dies_while_it_is_discarded_is_discarded() -> None:
    assert outcome("discard", Fault.LOSE, 5, 10).result is Result.DONE
    assert outcome("restore", Fault.LOSE, 5, 10) == Outcome(5, Result.LOST, DIED)


def test_results_become_the_events_of_the_engine() -> None:
    assert answer("park", 1, "n", "a", Result.DONE) == Parked(1, "n")
    assert answer("park", 1, "n", "a", Result.FAILED, "why") == MoveFailed(1, "n", "why")
    assert answer("park", 1, "n", "a", Result.LOST, "why") == JobLost("a", "why")


@given(seed=st.integers(), job=st.text(), n=st.integers(0, 10**9))
def test_a_draw_is_a_function_of_seed_job_and_number(seed: int, job: str, n: int) -> None:
    rates = FaultRates(0.1, 0.2, 0.3, 0.2, 0.1)
    assert Faults(seed, rates).draw(job, n) is Faults(seed, rates).draw(job, n)


def test_draws_come_up_at_their_rates() -> None:
    faults = Faults(1, FaultRates(fail=0.1, hang=0.2, lie=0.3, late=0.05, lose=0.15))
    seen = Counter(faults.draw("a", n) for n in range(4_000))
    shares = {fault.value: round(seen[fault] / 4_000, 1) for fault in (Fault.FAIL, Fault.HANG, Fault.LIE, Fault.NONE)}
    assert shares == {"fail": 0.1, "hang": 0.2, "lie": 0.3, "none": 0.2}


def test_without_rates_nothing_goes_wrong() -> None:
    assert {Faults(5).draw("a", n) for n in range(100)} == {Fault.NONE}


@pytest.mark.parametrize("fault", [fault for fault in Fault if fault is not Fault.NONE])
def test_a_rate_of_one_is_always(fault: Fault) -> None:
    assert {Faults(5, ONLY[fault]).draw("a", n) for n in range(200)} == {fault}


@pytest.mark.parametrize(
    ("rates", "text"),
    [
        ({"fail": -0.1}, "fail must be a number from 0 to 1, not -0.1"),
        ({"lie": float("nan")}, "lie must be a number from 0 to 1, not nan"),
        ({"hang": 0.6, "late": 0.6}, "together they must be at most 1, not 1.2"),
    ],
)
def test_wrong_rates_say_what_would_be_right(rates: dict[str, float], text: str) -> None:
    with pytest.raises(Invalid, match=text):
        FaultRates(**rates)
