"""Jobs that contend for one group, driven straight on the engine: the ring in which a policy's claims are tried.

Everything is drawn from a seed: job lengths, think times, owners and weights. Moves take no time when `switch_us`
is 0 (all jobs resident) and `switch_us` each otherwise. The record of every wait says by how many grants it was
overtaken.
"""

from __future__ import annotations

import json
from heapq import heappop, heappush
from random import Random

from msgspec import Struct, field

from tsched.commands import Command, Grant, Park, Restore, WakeAt
from tsched.engine import Engine
from tsched.events import Event, JobAdded, Parked, PhaseRequested, PhaseYielded, Restored, Woke
from tsched.model import Group, Job
from tsched.policies import Contest, Policy
from tsched.turns import Request

GROUP = "devices"


class Wait(Struct):
    """One request's wait: the others that were granted meanwhile, and what the bound may depend on."""

    request: Request
    ahead: int
    in_flow: int
    overtaken: int = 0
    arrivals: list[tuple[int, int]] = field(default_factory=list)
    served: bool = False


class Contestant(Struct, frozen=True):
    """A job of the ring: phases of about `length_us`, `think_us` apart, over and over."""

    job: Job
    length_us: int
    think_us: int
    clients: int = 1
    estimate_us: int | None = None


class Ring:
    """Runs contestants on one group until `horizon_us` and keeps the measured waits."""

    def __init__(self, policy: Policy, contestants: list[Contestant], seed: int, switch_us: int = 0) -> None:
        self.policy = policy
        self.contestants = {each.job.name: each for each in contestants}
        self.rng = Random(seed)
        self.switch_us = switch_us
        self.engine = Engine([Group(GROUP)], policy)
        self.log: list[tuple[int, Event, tuple[Command, ...]]] = []
        self.heap: list[tuple[int, int, Event]] = []
        self.seq = self.number = 0
        self.waits: dict[tuple[str, int], Wait] = {}
        self.done: list[Wait] = []
        self.used_us: dict[str, int] = {}
        self.charges: list[int] = []

    def run(self, horizon_us: int) -> None:
        for each in self.contestants.values():
            self._send(JobAdded(each.job), 0)
            for client in range(each.clients):
                self._ask(each, f"{each.job.name}/{client}", self.rng.randrange(1, 1000 + each.think_us))
        self.resume(horizon_us)

    def resume(self, horizon_us: int) -> None:
        while self.heap and self.heap[0][0] <= horizon_us:
            now, _, event = heappop(self.heap)
            self._send(event, now)

    def reload(self, policy: Policy) -> None:
        """Go on with an engine that was rebuilt from this one's snapshot and a fresh policy."""
        data = json.loads(json.dumps(self.engine.snapshot()))
        self.policy = policy
        self.engine = Engine.restore(data, [Group(GROUP)], policy)

    def _push(self, when: int, event: Event) -> None:
        self.seq += 1
        heappush(self.heap, (when, self.seq, event))

    def _ask(self, each: Contestant, client: str, when: int) -> None:
        self.number += 1
        event = PhaseRequested(client, self.number, each.job.name, (GROUP,), "phase", each.estimate_us, each.length_us)
        self._push(when, event)

    def _send(self, event: Event, now: int) -> None:
        state = self.engine.state
        if isinstance(event, PhaseYielded):
            lease = state.leases[event.lease]
            each = self.contestants[lease.job]
            length = now - lease.since_us
            self.used_us[each.job.account] = self.used_us.get(each.job.account, 0) + length
            self.charges += [length, lease.request.estimate_us]
            self._ask(each, lease.request.client, now + self._vary(each.think_us))
        ahead = len(state.groups[GROUP].queue) + (state.groups[GROUP].holder is not None)
        before = list(state.groups[GROUP].queue.ordered()) if isinstance(event, PhaseRequested) else []
        commands = tuple(self.engine.handle(event, now))
        self.log.append((now, event, commands))
        if isinstance(event, PhaseRequested):
            self._entered(state.requests.get((event.client, event.request)), ahead, before, now)
        for command in commands:
            self._obey(command, now)

    def _entered(self, request: Request | None, ahead: int, before: list[Request], now: int) -> None:
        if request is None:
            return
        for wait in self.waits.values():
            wait.arrivals.append((now, request.estimate_us))
        flow = self.policy.flow(request)
        in_flow = sum(1 for other in before if flow is not None and self.policy.flow(other) == flow)
        self.waits[request.key] = Wait(request, ahead, in_flow)

    def _obey(self, command: Command, now: int) -> None:
        match command:
            case Grant(lease, client, number, job):
                each = self.contestants[job]
                wait = self.waits.pop((client, number), None)
                if wait is not None:
                    wait.served = True
                    self.done.append(wait)
                for other in self.waits.values():
                    other.overtaken += 1
                self._push(now + self._vary(each.length_us), PhaseYielded(lease))
            case Park(op) | Restore(op):
                answer = Parked(op, "0") if isinstance(command, Park) else Restored(op, "0")
                self._push(now + self.switch_us, answer)
            case WakeAt(when):
                self._push(when, Woke())
            case _:
                pass

    def _vary(self, length_us: int) -> int:
        return max(1, round(length_us * self.rng.uniform(0.5, 1.5)))

    def contest(self, wait: Wait) -> Contest:
        weights = [max(1, round(each.job.weight * 1000)) for each in self.contestants.values()]
        return Contest(
            arrived_us=wait.request.arrived_us,
            estimate_us=wait.request.estimate_us,
            ahead=wait.ahead,
            in_flow=wait.in_flow,
            jobs=len(self.contestants) - 1,
            arrivals=wait.arrivals,
            min_charge_us=min(self.charges, default=1),
            max_charge_us=max(self.charges, default=1) + self.switch_us * 2,
            min_weight_milli=min(weights),
            max_weight_milli=max(weights),
        )
