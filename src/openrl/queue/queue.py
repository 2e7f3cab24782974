"""The work queue: which request of which model may run next, and what a result, a crash or a duplicate changes.

A pure state machine. Events are methods; each returns the effects that must be recorded together with it. The queue
holds no payloads and no results, knows no time, and never does what it decides. Models and sampling sessions take
turns, the one that was served longest ago first; see `line` for the order within a model.

A step is leased to a worker and stays leased until `finished` or `worker_died`. A lease that was taken back is void:
what is reported under its number changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from openrl.queue.draws import Draws, Waiting
from openrl.queue.line import Limits, Line, Unit
from openrl.queue.steps import (
    Answered,
    BringBack,
    Draw,
    Drop,
    Effect,
    Failed,
    Lease,
    Persist,
    Run,
    Step,
)

Flow = tuple[str, str]


class Queue:
    """All lines of one service. `limits` bound replay, deaths and batches."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._lines: dict[str, Line] = {}
        self._draws = Draws(self.limits.batch_sequences)
        self._drawn: dict[int, list[Waiting]] = {}
        self._leases: dict[int, Lease] = {}
        self._turns: dict[Flow, None] = {}  # who may have something to run, the longest unserved first
        self._units: dict[str, tuple[str, int]] = {}  # units that wait, by request
        self._next_lease = 1

    # what is there

    def line(self, model_id: str) -> Line | None:
        return self._lines.get(model_id)

    def lines(self) -> list[Line]:
        return list(self._lines.values())

    def leases(self) -> list[Lease]:
        return list(self._leases.values())

    def waiting_samples(self) -> int:
        return len(self._draws)

    def waiting_units(self) -> int:
        return len(self._units)

    # models

    def restored(self, line: Line) -> list[Effect]:
        """A model comes in as it was recorded: with all units after its durable state."""
        self._lines[line.model_id] = line
        for unit in line.waiting():
            self._units[unit.request_id] = (line.model_id, unit.seq)
        self._turns[("model", line.model_id)] = None
        if line.lost:
            return self._noted([effect for unit in line.waiting() for effect in line.refuse(unit)])
        return self._restarted_too_often(line)

    def submitted(self, model_id: str, unit: Unit) -> list[Effect]:
        """A new unit joins its model's line; the creating one makes the line. One that is known changes nothing."""
        line = self._lines.setdefault(model_id, Line(model_id, self.limits))
        if unit.seq in line.units or unit.seq <= line.durable:
            return []
        line.add(unit)
        if unit.status == "waiting":
            self._units[unit.request_id] = (model_id, unit.seq)
            if line.lost:
                return self._noted(line.refuse(unit))
        self._turns[("model", model_id)] = None
        return []

    def released(self, model_id: str) -> None:
        """Nobody needs the model just now: make its state durable and free its memory once nothing waits."""
        line = self._lines.get(model_id)
        if line is not None and line.position is not None:
            line.releasing = True
            self._turns[("model", model_id)] = None

    def forgotten(self, model_id: str) -> bool:
        """Let go of a line that waits for nothing and has no copy in memory; it can be restored from the record."""
        line = self._lines.get(model_id)
        if line is None or line.leased or line.position is not None or line.waiting():
            return False
        del self._lines[model_id]
        return True

    # samples

    def sample_submitted(self, waiting: Waiting) -> None:
        self._draws.add(waiting)
        self._turns[("sample", waiting.session)] = None

    # either

    def cancelled(self, request_id: str, failed: Failed) -> list[Effect]:
        """A request that waits fails; one that runs, or has its answer, goes on as if nothing had been said."""
        if self._draws.remove(request_id) is not None:
            return [Answered(request_id, failed)]
        model_id, seq = self._units.get(request_id, ("", 0))
        line = self._lines.get(model_id)
        if line is None or (isinstance(line.leased, Run) and line.leased.seq == seq):
            return []
        self._turns[("model", model_id)] = None
        return self._noted(line.fail(line.units[seq], failed))

    def is_waiting(self, request_id: str) -> bool:
        return request_id in self._units or request_id in self._draws

    # work

    def lease(self, worker: str) -> Lease | None:
        """The step that this worker does next. A model that is in one worker's memory stays with it."""
        for flow in list(self._turns):
            if self._is_elsewhere(flow, worker):
                continue
            step = self._next_step(flow)
            del self._turns[flow]
            if step is not None:
                return self._lease(worker, flow, step)
        return None

    def finished(
        self, number: int, failed: Failed | None = None, cost_us: int = 0, each: Sequence[Failed | None] = ()
    ) -> list[Effect]:
        """The step is done, or failed; for a draw `each` says so of every request."""
        lease = self._leases.pop(number, None)
        if lease is None:
            return []
        match lease.step:
            case Draw(request_ids=request_ids):
                del self._drawn[number]
                outcomes = each or [failed] * len(request_ids)
                return [Answered(*pair) for pair in zip(request_ids, outcomes, strict=True)]
            case Run() | BringBack() | Persist() | Drop() as step:
                line = self._lines[step.model_id]
                line.leased = None
                self._turns[("model", line.model_id)] = None
                return self._noted(_finish(line, step, failed, cost_us))

    def worker_died(self, worker: str) -> list[Effect]:
        """What the worker had goes back in line, and its models' copies are gone."""
        effects: list[Effect] = []
        for lease in [lease for lease in self._leases.values() if lease.worker == worker]:
            del self._leases[lease.number]
            for waiting in reversed(self._drawn.pop(lease.number, [])):
                effects += self._died_drawing(waiting)
        for line in [line for line in self._lines.values() if line.worker == worker]:
            self._turns[("model", line.model_id)] = None
            effects += self._noted(line.worker_died())
        return effects

    def check(self) -> None:
        """Raise AssertionError where the state contradicts itself."""
        for line in self._lines.values():
            line.check()
        leased = {lease.step.model_id for lease in self._leases.values() if not isinstance(lease.step, Draw)}
        assert leased == {line.model_id for line in self._lines.values() if line.leased is not None}

    # the rest is private

    def _is_elsewhere(self, flow: Flow, worker: str) -> bool:
        line = self._lines.get(flow[1]) if flow[0] == "model" else None
        return line is not None and line.worker not in (None, worker)

    def _next_step(self, flow: Flow) -> Step | list[Waiting] | None:
        if flow[0] == "sample":
            return self._draws.take(flow[1]) or None
        line = self._lines.get(flow[1])
        return line.next_step() if line is not None else None

    def _lease(self, worker: str, flow: Flow, step: Step | list[Waiting]) -> Lease:
        number, self._next_lease = self._next_lease, self._next_lease + 1
        if isinstance(step, list):
            self._drawn[number] = step
            step = Draw(tuple(waiting.request_id for waiting in step))
            self._turns[flow] = None
        else:
            line = self._lines[flow[1]]
            line.leased, line.worker = step, worker
        lease = self._leases[number] = Lease(number, worker, step)
        return lease

    def _noted(self, effects: list[Effect]) -> list[Effect]:
        for effect in effects:
            if isinstance(effect, Answered):
                self._units.pop(effect.request_id, None)
        return effects

    def _died_drawing(self, waiting: Waiting) -> list[Effect]:
        waiting.deaths += 1
        waiting.alone = True
        if waiting.deaths >= self.limits.deaths:
            text = f"the worker died {waiting.deaths} times in a row on this request: it is given up"
            return [Answered(waiting.request_id, Failed(text))]
        self._draws.put_back(waiting)
        self._turns[("sample", waiting.session)] = None
        return []

    def _restarted_too_often(self, line: Line) -> list[Effect]:
        head = line.head()
        text = f"the service died {self.limits.restarts} times in a row"
        if line.lost or head is None or head.status != "waiting":
            return []
        if line.recoveries >= self.limits.restarts:
            return self._noted(line.lose(Failed(f"{text} while it brought this model back")))
        if line.attempts >= self.limits.restarts:
            return self.cancelled(head.request_id, Failed(f"{text} on this request: it is given up"))
        return []


def _finish(line: Line, step: Run | BringBack | Persist | Drop, failed: Failed | None, cost_us: int) -> list[Effect]:
    match step:
        case Run():
            return line.ran(step, failed, cost_us)
        case BringBack():
            return line.brought_back(failed)
        case Persist():
            return line.persisted(step, failed)
        case Drop():
            line.dropped()
            return []
