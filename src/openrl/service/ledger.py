"""The queue and its record: every change of the queue, with the rows that make it survive. Synchronous, no clock.

Each event returns the writes that belong to it. Whoever drives the ledger commits them in the order in which they
were returned, and tells nobody of an answer, and starts no step, before its writes are committed. A process that dies
between any two commits then leaves a store from which `restore` goes on: what was not recorded did not happen.
"""

from __future__ import annotations

from collections.abc import Sequence

from openrl.queue import (
    Answered,
    BringBack,
    Draw,
    Effect,
    Failed,
    Lease,
    Limits,
    Line,
    Lost,
    Persist,
    Persisted,
    Queue,
    Run,
    Unit,
    Waiting,
)
from openrl.queue.steps import Status
from openrl.service.outcome import Outcome, record
from openrl.store import Change, MadeDurable, Model, Request, Sampler, Store, Write


class Ledger:
    def __init__(self, store: Store, limits: Limits | None = None) -> None:
        self.store = store
        self.queue = Queue(limits)
        self.answers: dict[str, Outcome] = {}  # given by writes that were returned last, until they are taken

    def restore(self, now_us: int) -> list[Write]:
        """Take up all that waits. Models for which nothing waits come when they are asked for."""
        writes: list[Write] = []
        for request in self.store.waiting():
            if request.model_id is not None:
                writes += self.ensure(request.model_id, now_us)
            else:
                writes += self._restore_sample(request, now_us)
        return writes

    def ensure(self, model_id: str, now_us: int) -> list[Write]:
        """See that the model's line is in the queue, from its rows if need be."""
        model = self.store.get(Model, model_id)
        if self.queue.line(model_id) is not None or model is None:
            return []
        line = Line(model_id, self.queue.limits, durable=model.durable_seq, applied=model.durable_seq)
        line.attempts, line.recoveries = model.attempts, model.recoveries
        if model.lost is not None:
            line.lost = Failed(model.lost, "user" if model.lost_category == "user" else "server")
        for request in self.store.units_after(model_id, model.durable_seq):
            line.add(_unit(request))
        return self._record(self.queue.restored(line), now_us)

    def accepted(self, request: Request, now_us: int) -> list[Write]:
        """A request of a model was kept, and joins the line."""
        assert request.model_id is not None
        if self.queue.line(request.model_id) is None:
            return self.ensure(request.model_id, now_us)
        return self._record(self.queue.submitted(request.model_id, _unit(request)), now_us)

    def sample_accepted(self, request: Request, sampler: Sampler) -> None:
        self.queue.sample_submitted(_waiting(request, sampler))

    def cancelled(self, request_id: str, failed: Failed, now_us: int) -> list[Write]:
        return self._record(self.queue.cancelled(request_id, failed), now_us)

    def lease(self, worker: str) -> tuple[Lease | None, list[Write]]:
        """The next step, and the note that it was begun, by which a restart knows what it may have died of."""
        lease = self.queue.lease(worker)
        if lease is None:
            return None, []
        match lease.step:
            case Draw(request_ids=request_ids):
                return lease, [Change(Request, request_id, {"attempts": 1}, grows=True) for request_id in request_ids]
            case Run(silent=False) as step:
                return lease, self._begun(step.model_id, "attempts")
            case (BringBack() | Persist() | Run(seq=0)) as step:
                return lease, self._begun(step.model_id, "recoveries")
        return lease, []

    def finished(self, lease: Lease, outcomes: Sequence[Outcome], now_us: int, folder: str = "") -> list[Write]:
        """A step came to its end; a draw has one outcome a request. `folder` holds what was persisted."""
        first = outcomes[0]
        each = [outcome.failed for outcome in outcomes] if isinstance(lease.step, Draw) else ()
        effects = self.queue.finished(lease.number, first.failed, first.cost_us, each)
        return self._record(effects, now_us, dict(zip(_requests(lease), outcomes, strict=False)), folder)

    def worker_died(self, worker: str, now_us: int) -> list[Write]:
        return self._record(self.queue.worker_died(worker), now_us)

    def take_answers(self) -> dict[str, Outcome]:
        answers, self.answers = self.answers, {}
        return answers

    def _begun(self, model_id: str, counter: str) -> list[Write]:
        line = self.queue.line(model_id)
        assert line is not None
        if counter == "attempts":
            line.attempts, line.recoveries = line.attempts + 1, 0
        else:
            line.recoveries += 1
        return [Change(Model, model_id, {"attempts": line.attempts, "recoveries": line.recoveries})]

    def _record(
        self, effects: list[Effect], now_us: int, outcomes: dict[str, Outcome] | None = None, folder: str = ""
    ) -> list[Write]:
        writes: list[Write] = []
        for effect in effects:
            match effect:
                case Answered(request_id=request_id, failed=failed):
                    outcome = Outcome(failed=failed) if failed else (outcomes or {})[request_id]
                    self.answers[request_id] = outcome
                    writes += record(request_id, outcome, now_us)
                case Persisted(model_id=model_id, seq=seq):
                    writes.append(MadeDurable(model_id, seq, folder))
                case Lost(model_id=model_id, failed=failed):
                    writes.append(Change(Model, model_id, {"lost": failed.error, "lost_category": failed.category}))
        return writes

    def _restore_sample(self, request: Request, now_us: int) -> list[Write]:
        sampler = self.store.get(Sampler, request.sampler_id or "")
        assert sampler is not None
        self.queue.sample_submitted(_waiting(request, sampler))
        if request.attempts < self.queue.limits.restarts:
            return []
        text = f"the service died {request.attempts} times in a row on this request: it is given up"
        return self.cancelled(request.request_id, Failed(text), now_us)


def _unit(request: Request) -> Unit:
    status: Status = "done" if request.state == "expired" else request.state
    return Unit(
        request.seq,
        request.request_id,
        request.digest,
        mutates=request.mutates,
        settles=request.settles,
        status=status,
    )


def _waiting(request: Request, sampler: Sampler) -> Waiting:
    weights = f"{sampler.base_model}\0{sampler.folder}"
    alone = request.attempts > 0
    return Waiting(request.request_id, sampler.sampler_id, weights, size=request.size, alone=alone)


def _requests(lease: Lease) -> tuple[str, ...]:
    match lease.step:
        case Draw(request_ids=request_ids):
            return request_ids
        case Run(request_id=request_id):
            return (request_id,)
    return ()
