"""The witness objects to every record that breaks a rule; the machine catches engines that are broken on purpose."""

from __future__ import annotations

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule, run_state_machine_as_test
from msgspec.structs import replace

from tsched import happened
from tsched.commands import Command, Discard, Grant, Park, Quarantine, Restore, Revoke, Suspend
from tsched.engine import Engine
from tsched.events import (
    Discarded,
    Event,
    EvictionForced,
    JobAdded,
    JobLeft,
    JobReadmitted,
    JobUpdated,
    MoveFailed,
    Parked,
    PhaseYielded,
    RequestCancelled,
    Restored,
    Woke,
)
from tsched.model import Group, Job
from tsched.policies.fifo import Fifo
from tsched.residency import Standing
from tsched.state import GroupState
from tsched.testing.machine import GROUPS, NAMES, EngineMachine
from tsched.testing.machine import JOBS as MACHINE_JOBS
from tsched.testing.witness import Violation, Witness
from tsched.turns import Lease, Request

Record = tuple[Event, list[Command]]


def grant(job: str, token: int, lease: int = 1, group: str = "g") -> Grant:
    return Grant(lease, job, lease, job, {group: token})


def move(kind: type[Park] | type[Restore] | type[Discard], op: int, job: str, token: int) -> Park | Restore | Discard:
    return kind(op, "g", job, token, ("0",), 1)


JOBS: list[Record] = [
    (JobAdded(Job("a", state_bytes={"g": 60}, turn_bytes={"g": 10})), []),
    (JobAdded(Job("b", state_bytes={"g": 50})), []),
    (JobAdded(Job("c", state_bytes={"g": 40}, turn_bytes={"g": 10})), []),
]
A_HAD_A_TURN: list[Record] = [*JOBS, (Woke(), [grant("a", 1)]), (PhaseYielded(1), [])]
A_IS_PARKED: list[Record] = [*A_HAD_A_TURN, (Woke(), [move(Park, 1, "a", 2)]), (Parked(1, "0"), [])]


def witness(records: list[Record], capacity_bytes: int | None = 100) -> Witness:
    seen = Witness([Group("g", capacity_bytes=capacity_bytes), Group("h")])
    for event, commands in records:
        seen.saw(event, commands)
    return seen


@pytest.mark.parametrize(
    ("before", "wrong", "text"),
    [
        ([], grant("z", 1), "not registered"),
        ([(JobLeft("a"), [])], grant("a", 1), "not registered"),
        ([(Woke(), [Quarantine("a", "failed")])], grant("a", 1), "to a quarantined job"),
        ([(Woke(), [grant("a", 1)])], grant("b", 2, lease=2), "holds g"),
        ([(Woke(), [grant("a", 1)])], grant("a", 2, lease=2), "holds g"),
        ([(Woke(), [grant("a", 7)]), (PhaseYielded(1), [])], grant("a", 7, lease=2), "rule E4"),
        ([(Woke(), [grant("a", 7)]), (PhaseYielded(1), [])], grant("a", 6, lease=2), "rule E4"),
        ([(Woke(), [grant("a", 7)]), (PhaseYielded(1), [])], move(Park, 1, "a", 7), "rule E4"),
        ([(Woke(), [grant("a", 1)]), (Woke(), [Revoke(1, ("g",), "late")])], grant("c", 2, 2), "may still compute"),
        ([(Woke(), [grant("a", 1)]), (Woke(), [Suspend(1)])], grant("c", 2, 2), "may still compute"),
        ([(Woke(), [grant("a", 1)])], move(Park, 1, "a", 2), "while a computes"),
        ([], move(Park, 1, "a", 1), "not there"),
    ],
)
def test_a_record_that_breaks_a_rule_of_turns_is_objected_to(before: list[Record], wrong: Command, text: str) -> None:
    """E2, E4, E5, E12, E16"""
    seen = witness([*JOBS, *before])
    with pytest.raises(Violation, match=text):
        seen.saw(Woke(), [wrong])


@pytest.mark.parametrize(
    ("before", "wrong", "text"),
    [
        ([(Woke(), [move(Park, 1, "a", 2)])], grant("a", 3, 2), "its state on g is parking"),
        ([(Woke(), [move(Park, 1, "a", 2)])], grant("b", 3, 2), "110 bytes on g of 100"),
        ([(Woke(), [move(Park, 1, "a", 2)]), (MoveFailed(1, "0"), [])], grant("b", 3, 2), "110 bytes on g of 100"),
        ([(Woke(), [move(Discard, 1, "a", 2)])], grant("b", 3, 2), "110 bytes on g of 100"),
        ([], grant("c", 2, 2), "110 bytes on g of 100"),
        ([], grant("b", 2, 2), "110 bytes on g of 100"),
    ],
)
def test_a_record_that_overfills_a_group_is_objected_to(before: list[Record], wrong: Command, text: str) -> None:
    """R1, R2: a, who had a turn, takes 60 of 100, until its memory was seen free."""
    seen = witness([*A_HAD_A_TURN, *before])
    with pytest.raises(Violation, match=text):
        seen.saw(Woke(), [wrong])


@pytest.mark.parametrize(
    ("before", "wrong", "text"),
    [
        ([], grant("a", 3, 2), "its state on g is parked"),
        ([(Woke(), [move(Restore, 2, "a", 3)])], grant("a", 4, 2), "its state on g is restoring"),
        ([(Woke(), [move(Restore, 2, "a", 3)]), (MoveFailed(2, "0"), [])], grant("a", 4, 2), "is restoring"),
        ([(Woke(), [grant("b", 3, 2)])], move(Restore, 2, "a", 4), "110 bytes on g of 100"),
        ([(Woke(), [move(Restore, 2, "a", 3)])], grant("b", 4, 2), "110 bytes on g of 100"),
        ([(EvictionForced("g", "a"), [])], move(Restore, 2, "a", 3), "not there"),
    ],
)
def test_a_state_that_is_not_there_is_not_taken_for_there(before: list[Record], wrong: Command, text: str) -> None:
    """E5, E15, R2: a is parked."""
    seen = witness([*A_IS_PARKED, *before])
    with pytest.raises(Violation, match=text):
        seen.saw(Woke(), [wrong])


def test_two_states_on_a_group_of_unknown_capacity_are_objected_to() -> None:
    """R4"""
    seen = witness(A_HAD_A_TURN, capacity_bytes=None)
    with pytest.raises(Violation, match=r"2 bytes on g of 1: \['a', 'b'\]"):
        seen.saw(Woke(), [grant("b", 2, 2)])


@pytest.mark.parametrize(
    "after",
    [
        [(Woke(), [grant("b", 3, 2)])],
        [(Woke(), [move(Restore, 2, "a", 3)]), (Restored(2, "0"), [grant("a", 4, 2)])],
        [(Woke(), [move(Discard, 2, "a", 3), grant("b", 4, 2)]), (Discarded(2, "0"), [])],
        [(Woke(), [Quarantine("a", "")]), (JobReadmitted("a"), []), (Woke(), [move(Restore, 2, "a", 3)])],
        [(JobUpdated(Job("b", state_bytes={"g": 50})), []), (Woke(), [grant("b", 3, 2)])],
        [(Woke(), [grant("c", 3, 2)]), (Woke(), [grant("c", 3, 2)])],
        [(Woke(), [grant("c", 3, 2)]), (PhaseYielded(2, ("h",)), []), (PhaseYielded(2, ("g",)), [grant("b", 4, 3)])],
        [(Parked(1, "0"), []), (Restored(9, "0"), []), (RequestCancelled("a", 1), [])],
    ],
)
def test_records_that_keep_the_rules_are_not_objected_to(after: list[Record]) -> None:
    witness([*A_IS_PARKED, *after])


def test_a_parked_state_takes_no_memory_however_often_its_discard_fails() -> None:
    """E16, R2"""
    first: Record = (JobLeft("a"), [move(Discard, 2, "a", 3)])
    again: Record = (Woke(), [move(Discard, 3, "a", 4)])
    added: Record = (JobAdded(Job("a", state_bytes={"g": 60})), [])
    witness([*A_IS_PARKED, first, (MoveFailed(2, "0"), []), added, again, (Woke(), [grant("b", 5, 2)])])


def test_what_a_job_left_behind_keeps_the_size_that_it_had() -> None:
    """E17, R2: a left 60 bytes, which are not gone yet; now it declares 90."""
    left: Record = (JobLeft("a"), [move(Discard, 1, "a", 2)])
    back: Record = (JobAdded(Job("a", state_bytes={"g": 90})), [])
    witness([*A_HAD_A_TURN, left, back, (JobAdded(Job("d", state_bytes={"g": 40})), []), (Woke(), [grant("d", 3, 2)])])


# ----------------------------------------------------------------------------------- engines broken on purpose


class DoubleGranting(Engine):
    """Lets the first in line in beside the holder."""

    def _while_held(self, name: str, group: GroupState, holder: Lease) -> None:
        head = group.queue.head()
        if head is not None and len(head.groups) == 1:
            self._grant(head)


class LosingAWaiter(Engine):
    """Forgets to look who is next after a yield."""

    def handle(self, event: Event, now: int) -> list[Command]:
        if isinstance(event, PhaseYielded):
            happened.apply(self.state, event, now)
            self.state.dirty.clear()
            return []
        return super().handle(event, now)


class ReusingTokens(Engine):
    """Grants with the last token of each group."""

    def _do(self, command: Command) -> None:
        if isinstance(command, Grant) and command.lease not in self.state.leases:
            command = replace(command, tokens={name: max(1, token - 1) for name, token in command.tokens.items()})
        super()._do(command)


class GrantingAfterAFailedRestore(Engine):
    """Takes a failed restore for a done one."""

    def handle(self, event: Event, now: int) -> list[Command]:
        if isinstance(event, MoveFailed) and event.op in self.state.moves:
            group, job = self.state.moves[event.op]
            if self.state.groups[group].ledger.places[job].standing is Standing.RESTORING:
                return super().handle(Restored(event.op, event.node), now)
        return super().handle(event, now)


class Trusting(Engine):
    """Believes that a job whose lease it took has stopped."""

    def _grantable(self, request: Request) -> bool:
        for name in request.groups:
            ledger = self.state.groups[name].ledger
            for place in ledger.places.values():
                ledger.set_unsafe(place, False)
        return super()._grantable(request)


class Overfilling(Engine):
    """Grants whatever is resident, whether the working memory fits or not."""

    def _grantable(self, request: Request) -> bool:
        ledgers = [self.state.groups[name].ledger for name in request.groups]
        capacities = [ledger.capacity for ledger in ledgers]
        for ledger in ledgers:
            ledger.capacity *= 10
        try:
            return super()._grantable(request)
        finally:
            for ledger, capacity in zip(ledgers, capacities, strict=True):
                ledger.capacity = capacity


BROKEN = [
    (DoubleGranting, "holds|disagree on who holds"),
    (LosingAWaiter, "lost waiters|nobody of .* waiting is served"),
    (ReusingTokens, "rule E4"),
    (GrantingAfterAFailedRestore, "its state on .* is restoring"),
    (Trusting, "may still compute|rule J3"),
    (Overfilling, "bytes on .* of"),
]


def attack(broken: type[Engine]) -> type[EngineMachine]:
    """The machine, on a broken engine, with jobs from the start and a rule more that keeps them busy."""

    class Attack(EngineMachine):
        make_policy = Fifo
        begin = go = resize = None  # type: ignore[assignment]  # jobs stay as they are, so that sizes are never in doubt

        def _fresh(self) -> Engine:
            return broken(GROUPS, Fifo(), reattach_us=10_000)

        @initialize()
        def jobs(self) -> None:
            for name in MACHINE_JOBS:
                self.send(
                    JobAdded(Job(name, state_bytes=dict.fromkeys(NAMES, 30), turn_bytes=dict.fromkeys(NAMES, 25)))
                )

        @rule(
            script=st.lists(st.tuples(st.sampled_from("aaaammmmyyyfw"), st.integers(0, 14)), min_size=10, max_size=40)
        )
        def bustle(self, script: list[tuple[str, int]]) -> None:
            for kind, which in script:
                moves = self.open_moves()
                if kind == "a":
                    self.ask(MACHINE_JOBS[which % 5], [NAMES[which % 3]], 500, None, 0, "train")
                elif kind in "mf" and moves:
                    self._answer(*moves[which % len(moves)], well=kind == "m")
                elif kind == "w":
                    self.wait(12_000)
                elif kind == "y" and self.engine.state.leases:
                    self.give_back(which, False, 1000)
                self.structure()

    return Attack


@pytest.mark.parametrize(("broken", "text"), BROKEN, ids=lambda each: getattr(each, "__name__", ""))
def test_an_engine_that_is_broken_on_purpose_is_caught(broken: type[Engine], text: str) -> None:
    few = settings(max_examples=50, stateful_step_count=20, phases=[Phase.generate], report_multiple_bugs=False)
    with pytest.raises(Violation, match=text):
        run_state_machine_as_test(attack(broken), settings=few)


def test_an_engine_that_is_whole_is_not() -> None:
    few = settings(max_examples=20, stateful_step_count=20, phases=[Phase.generate])
    run_state_machine_as_test(attack(Engine), settings=few)
