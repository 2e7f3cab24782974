"""A Hypothesis state machine that attacks the engine under one policy.

It draws jobs, requests, nested requests, cancels, yields, expiries, resizes, failed and finished moves, lost nodes
and jobs, operator's orders, and crashes with recovery from snapshot and log, at every step. After each step the
`Witness` and the structural invariants must hold; at the end, when the world behaves again, every waiter must have
been served.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tsched import waitfor
from tsched.commands import Command, Discard, Grant, Move, Park, Refuse, Restore, WakeAt
from tsched.engine import Engine
from tsched.events import (
    Discarded,
    Event,
    EvictionForced,
    JobAdded,
    JobLeft,
    JobLost,
    JobReadmitted,
    JobUpdated,
    LeaseRenewed,
    MoveFailed,
    NodeLost,
    NodeReturned,
    Parked,
    PhaseRequested,
    PhaseYielded,
    RequestCancelled,
    Restarted,
    Restored,
    Woke,
)
from tsched.model import Group, Job
from tsched.policies import Policy
from tsched.testing.structure import check_structure
from tsched.testing.witness import Violation, Witness

GROUPS = (
    Group("exclusive", nodes=("n0", "n1"), max_hold_us=50_000, retries=1),
    Group("roomy", capacity_bytes=100, lease_ttl_us=20_000, retries=0),
    Group("elastic", capacity_bytes=60, max_phase_us=5_000, suspendable=True, lease_ttl_us=30_000),
    Group("plain", capacity_bytes=1_000, prefetch=False),
)
NAMES = tuple(group.name for group in GROUPS)
JOBS = ("a", "b", "c", "d", "e")
sizes = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 60))


class EngineMachine(RuleBasedStateMachine):
    """Subclass it and set `make_policy`, or use `machine(make_policy)`."""

    make_policy: Callable[[], Policy]

    def __init__(self) -> None:
        super().__init__()
        self.engine = self._fresh()
        self.base: dict[str, Any] | None = None
        self.tail: list[tuple[Event, list[Command], int]] = []
        self.witness = Witness(GROUPS)
        self.now = 1
        self.sound = True
        self.number = 0
        self.moves: dict[int, Park | Restore | Discard] = {}
        self.answered: set[tuple[int, str]] = set()
        self.waiting: dict[tuple[str, int], PhaseRequested] = {}
        self.wake: int | None = None

    def _fresh(self) -> Engine:
        return Engine(GROUPS, type(self).make_policy(), reattach_us=10_000)

    def send(self, event: Event) -> list[Command]:
        commands = list(self.engine.handle(event, self.now))
        self.tail.append((event, commands, self.now))
        self.sound = False
        self.witness.saw(event, commands)
        self.sound = True
        for command in commands:
            self._note(command)
        return commands

    def _note(self, command: Command) -> None:
        match command:
            case Park() | Restore() | Discard():
                self.moves[command.op] = command
            case Grant(_, client, request) | Refuse(client, request):
                self.waiting.pop((client, request), None)
            case WakeAt(when):
                self.wake = when
            case _:
                pass

    # what clients do

    @initialize(drawn=st.lists(sizes, min_size=3, max_size=4))
    def begin(self, drawn: list[dict[str, int]]) -> None:
        """There are jobs to contend."""
        for name, state in zip(JOBS, drawn, strict=False):
            self.send(JobAdded(Job(name, "", 1, state, dict.fromkeys(NAMES, 10))))

    @rule(name=st.sampled_from(JOBS), group=st.sampled_from(NAMES), estimate=st.sampled_from((None, 500, 5_000)))
    def ask_one(self, name: str, group: str, estimate: int | None) -> None:
        self._ask(name, (group,), estimate)

    @rule(
        name=st.sampled_from(JOBS),
        owner=st.sampled_from(("x", "y", "")),
        weight=st.sampled_from((0.5, 1, 3)),
        state=sizes,
    )
    def add(self, name: str, owner: str, weight: float, state: dict[str, int]) -> None:
        self.send(JobAdded(Job(name, owner, weight, state, dict.fromkeys(NAMES, 10))))

    @rule(name=st.sampled_from(JOBS), state=sizes)
    def resize(self, name: str, state: dict[str, int]) -> None:
        self.send(JobUpdated(Job(name, state_bytes=state, turn_bytes=dict.fromkeys(NAMES, 5))))

    @rule(
        name=st.sampled_from(JOBS),
        groups=st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True),
        estimate=st.sampled_from((None, 0, 500, 5_000)),
        remaining=st.sampled_from((None, 0, 9_000)),
        nested=st.integers(0, 3),
        phase=st.sampled_from(("train", "generate")),
    )
    def ask(
        self, name: str, groups: list[str], estimate: int | None, remaining: int | None, nested: int, phase: str
    ) -> None:
        leases = sorted(self.engine.state.leases)
        within = leases[nested % len(leases)] if nested and leases else None
        if within is not None:
            name = self.engine.state.leases[within].job
        self._ask(name, tuple(groups), estimate, remaining, within, phase)

    def _ask(
        self,
        name: str,
        groups: tuple[str, ...],
        estimate: int | None = None,
        remaining: int | None = None,
        within: int | None = None,
        phase: str = "train",
    ) -> None:
        self.number += 1
        event = PhaseRequested("c", self.number, name, groups, phase, estimate, remaining, within)
        self.waiting["c", self.number] = event
        self.send(event)

    @precondition(lambda self: self.engine.state.leases)
    @rule(which=st.integers(0, 99), groups=st.lists(st.sampled_from(NAMES), min_size=1, max_size=2, unique=True))
    def ask_within(self, which: int, groups: list[str]) -> None:
        leases = sorted(self.engine.state.leases)
        lease = self.engine.state.leases[leases[which % len(leases)]]
        self._ask(lease.job, tuple(groups), within=lease.id)

    @precondition(lambda self: self.waiting)
    @rule(which=st.integers(0, 99))
    def ask_again_or_cancel(self, which: int) -> None:
        key = sorted(self.waiting)[which % len(self.waiting)]
        if which % 2:
            self.send(self.waiting[key])
        else:
            self.send(RequestCancelled(*key))
            self.waiting.pop(key)

    @precondition(lambda self: self.engine.state.leases)
    @rule(which=st.integers(0, 99), partly=st.booleans(), after=st.integers(0, 4_000))
    def give_back(self, which: int, partly: bool, after: int) -> None:
        leases = sorted(self.engine.state.leases)
        lease = self.engine.state.leases[leases[which % len(leases)]]
        self.now += after
        self.send(PhaseYielded(lease.id, tuple(lease.tokens)[:1] if partly else ()))
        if not lease.tokens:
            self.waiting.pop(lease.request.key, None)

    @rule(lease=st.integers(1, 30))
    def renew(self, lease: int) -> None:
        self.send(LeaseRenewed(lease))

    @rule(name=st.sampled_from(JOBS), lost=st.booleans())
    def go(self, name: str, lost: bool) -> None:
        self.send(JobLost(name, "drawn") if lost else JobLeft(name))

    # what the world does

    @precondition(lambda self: self.open_moves())
    @rule(which=st.integers(0, 99), well=st.sampled_from((True, True, True, False)), after=st.integers(0, 3_000))
    def answer(self, which: int, well: bool, after: int) -> None:
        pending = self.open_moves()
        self.now += after
        self._answer(*pending[which % len(pending)], well)

    def open_moves(self) -> list[tuple[int, str]]:
        nodes = [(op, node) for op, move in sorted(self.moves.items()) for node in move.nodes]
        return [each for each in nodes if each not in self.answered]

    def _answer(self, op: int, node: str, well: bool) -> None:
        self.answered.add((op, node))
        move = self.moves[op]
        done: dict[type[Move], type[Parked | Restored | Discarded]] = {
            Park: Parked,
            Restore: Restored,
            Discard: Discarded,
        }
        self.send(done[type(move)](op, node) if well else MoveFailed(op, node, "drawn"))

    @rule(after=st.sampled_from((1, 1_000, 12_000, 60_000)))
    def wait(self, after: int) -> None:
        target = self.now + after
        while self.wake is not None and self.wake <= target:
            self.now, self.wake = max(self.now, self.wake), None
            self.send(Woke())
        self.now = target

    @rule(name=st.sampled_from(NAMES), lost=st.booleans())
    def node(self, name: str, lost: bool) -> None:
        node = self.engine.state.groups[name].group.nodes[0]
        self.send(NodeLost(name, node, "drawn") if lost else NodeReturned(name, node))

    @rule(name=st.sampled_from(JOBS), group=st.sampled_from(NAMES), evict=st.booleans())
    def operate(self, name: str, group: str, evict: bool) -> None:
        self.send(EvictionForced(group, name) if evict else JobReadmitted(name))

    @rule(compact=st.booleans())
    def crash(self, compact: bool) -> None:
        """Kill the scheduler and start it again from its log."""
        before = self.engine.snapshot()
        base = json.loads(json.dumps(self.base)) if self.base is not None else None
        policy = type(self).make_policy()
        engine = self._fresh() if base is None else type(self.engine).restore(base, GROUPS, policy, reattach_us=10_000)
        for event, commands, now in self.tail:
            engine.apply(event, commands, now)
        for part, recovered in json.loads(json.dumps(engine.snapshot())).items():
            if recovered != (was := json.loads(json.dumps(before[part]))):
                raise Violation(f"rule J3: the recovered {part} differ: {was} became {recovered}")
        self.engine = engine
        if compact:
            self.base, self.tail = json.loads(json.dumps(before)), []
        self.answered = {each for each in self.answered if each[0] not in engine.state.moves}
        self.answered |= {
            (op, node)
            for op, (group, job) in engine.state.moves.items()
            for node in self.moves[op].nodes
            if node not in engine.state.groups[group].ledger.places[job].pending
        }
        self.wake = None
        self.send(Restarted())

    # what must hold

    @invariant()
    def structure(self) -> None:
        check_structure(self.engine.state)

    def teardown(self) -> None:
        """The world behaves again: every waiter is served or refused within a bounded number of steps."""
        if not self.sound:
            return
        for group in GROUPS:
            for node in group.nodes:
                self.send(NodeReturned(group.name, node))
        for _ in range(400):
            if not self.waiting and not self.engine.state.moves:
                return
            self._settle()
        raise Violation(f"rule E19: lost waiters {sorted(self.waiting)}, moves {self.engine.state.moves}")

    def _settle(self) -> None:
        self.now += 1_000
        for op, node in self.open_moves():
            self._answer(op, node, True)
        state = self.engine.state
        for lease in [lease for lease in state.leases.values() if not waitfor.pending(state, lease)]:
            if lease.id in self.engine.state.leases:
                self.send(PhaseYielded(lease.id))
        if self.wake is not None:
            self.now, self.wake = max(self.now, self.wake), None
            self.send(Woke())


def machine(make_policy: Callable[[], Policy]) -> type[EngineMachine]:
    """The machine for one policy, to run with `hypothesis.stateful.run_state_machine_as_test`."""

    class Machine(EngineMachine):
        pass

    Machine.make_policy = staticmethod(make_policy)
    return Machine
