"""The simulator: the real engine, driven by a heap of (now, seq, item) and modelled costs.

One entry is popped at a time and all its consequences are finished before the next, in this order (the live
driver keeps the same one in virtual time, so both write the same decision log):

1. The client whose entry it is goes on with its program until it must wait, for time or for a grant, or has yielded.
2. Whoever its event woke (clients that were granted or refused, moves that were commanded) follows, first come, first
   served, and last the client itself, if it need not wait. A wake-up call is set before any of them.

A run of zero length takes no entry. A client whose request is refused, or who finds at its yield that the lease has
ended, has failed: its job stops and leaves. A job that was lost does nothing any more. The simulation is over when the
last job is. It never looks at a clock and draws nothing: everything random was drawn before (`tsched.sim.draw`).
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from heapq import heappop, heappush
from typing import NamedTuple

from tsched.commands import Command, Discard, Grant, Park, Refuse, Restore, Suspend, WakeAt
from tsched.costs import MoveKind, move_us
from tsched.engine import Engine
from tsched.errors import Deadlock
from tsched.events import Event, JobAdded, JobLeft, JobLost, PhaseRequested, PhaseYielded, Woke
from tsched.faults import Faults, answer, outcome
from tsched.journal import Header, Journal, Record
from tsched.plugins import load_policy
from tsched.policies import Policy
from tsched.sim.client import Client
from tsched.sim.draw import AcquireOp, RunOp, YieldOp
from tsched.sim.result import Result, result
from tsched.sim.tally import Tally, tally
from tsched.sim.workload import Drawn, Workload

MOST_IDLE = 10_000  # events in a row by which no client comes any further
_WOKE = Woke()
_KINDS: dict[type[Command], MoveKind] = {Park: "park", Restore: "restore", Discard: "discard"}

MoveNode = tuple[Park | Restore | Discard, str, int]
Entry = tuple[int, int, "Client | int | Event", int]


class Simulation(NamedTuple):
    """What came of it: the decision log, in its header and records, and the figures."""

    header: Header
    records: list[Record]
    result: Result


def simulate(
    workload: Workload | Drawn,
    policy: str | Policy = "fifo",
    seed: int | None = None,
    journal: Journal | None = None,
    *,
    keep: bool = True,
) -> Simulation:
    """Run `workload` under `policy`.

    Args:
        workload: what to run; one that is drawn already keeps its own seed.
        policy: a name as for `load_policy`, or a policy that has not been used yet.
        seed: of the durations and faults; without it the workload's own.
        journal: where the decision log is written as well.
        keep: whether the records are returned; without them memory does not grow with the run.

    Raises:
        Deadlock: nothing can happen any more, and jobs are not done; the text says who waits for what.
        UnknownPlugin: there is no such policy.
    """
    drawn = workload if isinstance(workload, Drawn) else workload.draw(seed)
    chosen = load_policy(policy)
    meta = {**drawn.workload.meta, "workload": drawn.workload.name, "seed": str(drawn.seed)}
    header = Header(drawn.workload.groups, policy if isinstance(policy, str) else chosen.name, meta)
    if journal is not None:
        journal.begin(header)
    simulator = Simulator(drawn, chosen, journal, keep, name=header.policy)
    simulator.run()
    return Simulation(header, simulator.records, simulator.result())


@contextmanager
def collector_paused() -> Iterator[None]:
    """Without the cycle collector: a run makes millions of small values and no cycles."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class Simulator:
    """One run. `now` is virtual time; `records` grows with every event."""

    def __init__(
        self, drawn: Drawn, policy: Policy, journal: Journal | None = None, keep: bool = True, name: str = ""
    ) -> None:
        self.drawn = drawn
        self._policy = name or policy.name
        self.engine = Engine(drawn.workload.groups, policy)
        self._handle = self.engine.handle
        self._held = self.engine.state.leases
        self.faults = Faults(drawn.seed, drawn.workload.faults)
        self.records: list[Record] = []
        self.tally = Tally(drawn.workload.groups)
        self.now = 0
        self._journal = journal
        self._keep = keep
        self._heap: list[Entry] = []
        self._ready: deque[Client | MoveNode] = deque()
        self._seq = 0
        self._record_seq = 0
        self._wake_seq = -1
        self._asker: Client | None = None
        self._moves: dict[str, int] = {}
        self._clients: dict[str, Client] = {}
        self._by_lease: dict[int, Client] = {}
        self._working: dict[str, list[Client]] = {}

    def run(self) -> None:
        """Until every job is done."""
        for index, job in enumerate(self.drawn.jobs):
            clients = [Client(context) for context in job.contexts]
            self._clients.update((client.name, client) for client in clients)
            self._working[job.job.name] = clients
            self._push(job.arrival_us, index, 0)
        with collector_paused():
            self._loop()

    def result(self) -> Result:
        """The figures of the run, counted from its records where they were kept."""
        if self._keep:
            self.tally = tally(self.drawn.workload.groups, self.records)
        return result(self.tally, self._policy, self.drawn)

    def _loop(self) -> None:
        heap, ready, working = self._heap, self._ready, self._working
        idle = 0
        while working:
            if not heap or idle > MOST_IDLE:
                raise Deadlock(self._stuck())
            self.now, seq, item, epoch = heappop(heap)
            if type(item) is Client:
                if item.epoch != epoch:
                    continue
                idle = 0
                item.sleeping = False
                self._go_on(item)
            elif isinstance(item, int):
                idle = 0
                self._arrive(item)
            elif item is _WOKE:
                if seq != self._wake_seq:
                    continue
                idle += 1
                self._feed(item)
            elif epoch in self.engine.state.moves:
                idle += 1
                self._answer(item)
            while ready:
                woken = ready.popleft()
                if type(woken) is Client:
                    self._wake(woken)
                else:
                    self._begin(*woken)

    def _push(self, when: int, item: Client | int | Event, epoch: int) -> None:
        heappush(self._heap, (when, self._seq, item, epoch))
        self._seq += 1

    # ------------------------------------------------------------------- jobs

    def _arrive(self, index: int) -> None:
        job = self.drawn.jobs[index].job
        self._feed(JobAdded(job))
        self._ready.extend(self._working[job.name])

    def _wake(self, client: Client) -> None:
        """A client starts, was granted its turn, was granted it again after a suspension, or was refused."""
        if client.over:
            return
        if client.refused:
            self._fail(client)
        elif client.left_us is not None:
            left, client.left_us = client.left_us, None
            self._sleep(client, left)
        else:
            self._go_on(client)

    def _go_on(self, client: Client) -> None:
        """Run the client's program until it waits or ends. Written out in full: every event comes through here."""
        ops = client.ops
        while True:
            index = client.index
            if index == len(ops):
                if not client.turns_left:
                    self._end(client)
                    return
                client.turns_left -= 1
                index = 0
            client.index = index + 1
            op = ops[index]
            kind = type(op)
            if kind is RunOp:
                length = client.durations[client.position]
                client.position += 1
                if length:
                    self._sleep(client, length)
                    return
                continue
            if kind is YieldOp:
                waits = not self._give_back(client, op)  # type: ignore[arg-type]
            else:
                waits = not self._ask(client, op)  # type: ignore[arg-type]
            if waits:
                return
            if self._ready:
                self._ready.append(client)
                return

    def _sleep(self, client: Client, length: int) -> None:
        if client.paused:
            client.left_us = length
            return
        client.sleeping = True
        until = client.until_us = self.now + length
        heappush(self._heap, (until, self._seq, client, client.epoch))
        self._seq += 1

    def _give_back(self, client: Client, op: YieldOp) -> bool:
        """Yield; whether the client can go on: it fails where the lease has ended."""
        lease = client.leases[op.slot]
        if lease not in self._held:
            self._fail(client)
            return False
        if op.last:
            del self._by_lease[lease]
            client.paused.discard(lease)
        self._feed(PhaseYielded(lease, op.groups))
        return True

    def _ask(self, client: Client, op: AcquireOp) -> bool:
        """Request a turn; whether the client can go on at once, its turn granted."""
        _, groups, phase, estimate, remaining, parent = op
        within = None
        if parent is not None:
            within = client.leases[parent]
            if within not in self._held:
                self._fail(client)
                return False
        client.request += 1
        client.asking = op
        remaining += client.later_us()
        self._asker = client
        self._feed(PhaseRequested(client.name, client.request, client.job, groups, phase, estimate, remaining, within))
        self._asker = None
        if client.refused:
            self._ready.append(client)
            return False
        return client.asking is not op

    def _end(self, client: Client) -> None:
        client.stop()
        working = self._working[client.job]
        working.remove(client)
        if not working:
            self._leave(client.job)

    def _fail(self, client: Client) -> None:
        """The whole job stops and leaves."""
        for each in self._working[client.job]:
            each.stop()
        self._leave(client.job)

    def _leave(self, job: str) -> None:
        del self._working[job]
        if job in self.engine.state.jobs:
            self._feed(JobLeft(job))

    # ------------------------------------------------------------------ engine

    def _feed(self, event: Event) -> None:
        """Hand one event to the engine, write down what it says, and pass its commands on."""
        commands = self._handle(event, self.now)
        record = Record(self._record_seq, self.now, event, tuple(commands))
        self._record_seq += 1
        if self._journal is not None:
            self._journal.append(record)
        if self._keep:
            self.records.append(record)
        else:
            self.tally.take(record)
        for command in commands:
            kind = type(command)
            if kind is Grant:
                self._granted(command)  # type: ignore[arg-type]
            elif kind in _KINDS:
                self._moving(command)  # type: ignore[arg-type]
            elif kind is Refuse:
                self._refused(command)  # type: ignore[arg-type]
            elif kind is Suspend:
                self._suspended(command)  # type: ignore[arg-type]
            elif kind is WakeAt:
                self._wake_seq = self._seq
                self._push(max(self.now, command.when_us), _WOKE, 0)  # type: ignore[union-attr]

    def _granted(self, grant: Grant) -> None:
        client = self._clients[grant.client]
        if client.asking is not None:
            client.leases[client.asking.slot] = grant.lease
            client.asking = None
            self._by_lease[grant.lease] = client
        else:
            client.paused.discard(grant.lease)
            if client.paused or client.left_us is None:
                return
        if client is not self._asker:
            self._ready.append(client)

    def _refused(self, refuse: Refuse) -> None:
        client = self._clients[refuse.client]
        if not client.over:
            client.refused = refuse.detail
            if client is not self._asker:
                self._ready.append(client)

    def _suspended(self, suspend: Suspend) -> None:
        client = self._by_lease[suspend.lease]
        client.paused.add(suspend.lease)
        if client.sleeping:
            client.sleeping = False
            client.left_us = client.until_us - self.now
            client.epoch += 1

    def _moving(self, move: Park | Restore | Discard) -> None:
        n = self._moves.get(move.job, 0)
        for node in move.nodes:
            self._ready.append((move, node, n))
            n += 1
        self._moves[move.job] = n

    def _begin(self, move: Park | Restore | Discard, node: str, n: int) -> None:
        """One node begins to move: it is known already how that will end, and when."""
        kind = _KINDS[type(move)]
        cost = move_us(self.drawn.workload.costs, kind, move.group, move.job, move.size_bytes, n)
        ends = outcome(kind, self.faults.draw(move.job, n), cost, move.timeout_us)
        event = answer(kind, move.op, node, move.job, ends.result, ends.reason)
        self._push(self.now + ends.delay_us, event, move.op)

    def _answer(self, event: Event) -> None:
        if isinstance(event, JobLost):
            for client in self._working.pop(event.job, ()):
                client.stop()
        self._feed(event)

    def _stuck(self) -> str:
        waits = []
        for clients in self._working.values():
            for client in clients:
                if client.asking is None:
                    waits.append(f"{client.name!r} is suspended")
                    continue
                holders = [
                    f"{name} ({'held by ' + repr(group.holder.job) if group.holder else 'not held'})"
                    for name in client.asking.groups
                    for group in (self.engine.state.groups[name],)
                ]
                waits.append(f"{client.name!r} waits for {', '.join(holders)}")
        shown = "; ".join(waits[:8]) + (f"; and {len(waits) - 8} more" if len(waits) > 8 else "")
        return f"{self.drawn.workload.name}: at {self.now / 1e6:.6f} s nothing can happen any more: {shown}"
