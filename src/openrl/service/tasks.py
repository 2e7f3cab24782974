"""From a lease to a call for the worker's thread. What the store knows is read beforehand, on the store's thread."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from pathlib import Path

import structlog
from msgspec import Struct

from openrl.errors import OpenRLError, RequestError, StoreError, WorkerDied
from openrl.queue import BringBack, Draw, Drop, Failed, Lease, Persist, Run
from openrl.service.answers import Ready
from openrl.service.held import Held
from openrl.service.orders import Create, Load, Save, decode_order, is_own, work_of
from openrl.service.outcome import Outcome
from openrl.service.saves import save
from openrl.service.seeds import with_weights
from openrl.store import Model, Request, Sampler, Store
from openrl.work import ForwardBackwardResult, OptimResult, Sample, SampleResult, Work
from openrl.worker import Worker

_log = structlog.get_logger(__name__)
Decode = Callable[[str, bytes], Work | Sample]


class Task(Struct, frozen=True):
    """`call` raises nothing but `WorkerDied`. A model is persisted in `folder`, and was before in `replaces`."""

    call: Callable[[], list[Outcome]]
    folder: str = ""
    replaces: str = ""


class Tasks:
    def __init__(self, store: Store, worker: Worker, decode: Decode, folder: Path, held: Held) -> None:
        self.held = held
        self._store = store
        self._worker = worker
        self._decode = decode
        self._folder = folder

    def task(self, lease: Lease, now_us: int) -> Task:
        """Reads from the store; what it cannot read becomes the step's failure."""
        try:
            return self._task(lease, now_us)
        except Exception as error:
            failed = Outcome(failed=_failed(error))
            count = len(lease.step.request_ids) if isinstance(lease.step, Draw) else 1
            return Task(lambda: [failed] * count)

    def _task(self, lease: Lease, now_us: int) -> Task:
        match lease.step:
            case Run() as step:
                return _one(self._run(step, now_us))
            case BringBack(model_id=model_id):
                model = self._model(model_id)
                return _one(lambda: self._bring_back(model))
            case Persist(model_id=model_id, seq=seq):
                return self._persist(self._model(model_id), seq)
            case Drop(model_id=model_id):
                return _one(lambda: self._drop(model_id))
            case Draw(request_ids=request_ids):
                samples = [self._sample(request_id) for request_id in request_ids]
                return Task(lambda: self._draw(samples))

    def _run(self, step: Run, now_us: int) -> Callable[[], Outcome]:
        request, model = self._request(step.request_id), self._model(step.model_id)
        held = self.held.get(step.request_id)
        payload = b"" if held is not None else self._store.payload(step.request_id)
        if not is_own(request.kind):
            return lambda: self._work(model, held if held is not None else self._decode(request.kind, payload))
        match decode_order(payload):
            case Create():
                return lambda: self._create(model)
            case Load() as load:
                return lambda: self._load(model, load)
            case Save() as order:
                return save(self._store, self._worker, model, order, now_us)

    def _create(self, model: Model) -> Outcome:
        self._worker.check(model.spec)
        if model.source:
            self._worker.load(model.model_id, model.spec, model.source, model.source_optimizer)
        else:
            self._worker.create(model.model_id, model.spec)
        return Outcome(Ready(model.model_id, model.source_path))

    def _load(self, model: Model, order: Load) -> Outcome:
        self._worker.run(model.model_id, work_of(order))
        return Outcome(Ready(model.model_id, order.path))

    def _work(self, model: Model, work: Work | Sample) -> Outcome:
        assert not isinstance(work, Sample)
        result = self._worker.run(model.model_id, work)
        assert isinstance(result, ForwardBackwardResult | OptimResult)
        return Outcome(result)

    def _bring_back(self, model: Model) -> Outcome:
        self._worker.load_durable(model.model_id, model.spec, model.durable_folder)
        return Outcome()

    def _persist(self, model: Model, seq: int) -> Task:
        folder = self._folder / model.model_id / f"{seq}-{uuid.uuid4().hex[:8]}"

        def call() -> Outcome:
            folder.parent.mkdir(parents=True, exist_ok=True)
            self._worker.save_durable(model.model_id, str(folder))
            return Outcome()

        return Task(lambda: [_guarded(call)], str(folder), model.durable_folder)

    def _drop(self, model_id: str) -> Outcome:
        self._worker.drop(model_id)
        return Outcome()

    def _sample(self, request_id: str) -> Callable[[], Sample]:
        request = self._request(request_id)
        sampler = self._store.get(Sampler, request.sampler_id or "")
        held = self.held.get(request_id)
        payload = b"" if held is not None else self._store.payload(request_id)
        if sampler is None:
            raise StoreError(f"the sampling session of request {request_id} is not there")
        return lambda: with_weights(held or self._decode(request.kind, payload), sampler, request.seed)

    def _draw(self, batch: list[Callable[[], Sample]]) -> list[Outcome]:
        started = time.monotonic_ns()
        try:
            found = list(self._worker.sample([sample() for sample in batch]))
            if len(found) != len(batch):
                raise RequestError(f"the worker gave {len(found)} answers to {len(batch)} samples", "server")
        except WorkerDied:
            raise
        except Exception as error:
            return [Outcome(failed=_failed(error))] * len(batch)
        cost_us = (time.monotonic_ns() - started) // 1000
        return [_drawn(answer, cost_us) for answer in found]

    def _request(self, request_id: str) -> Request:
        request = self._store.get(Request, request_id)
        if request is None:
            raise StoreError(f"request {request_id} is not in the store")
        return request

    def _model(self, model_id: str) -> Model:
        model = self._store.get(Model, model_id)
        if model is None:
            raise StoreError(f"model {model_id} is not in the store")
        return model


def _drawn(answer: SampleResult | RequestError, cost_us: int) -> Outcome:
    if isinstance(answer, RequestError):
        return Outcome(failed=_failed(answer), cost_us=cost_us)
    return Outcome(answer, cost_us=cost_us)


def _one(call: Callable[[], Outcome]) -> Task:
    return Task(lambda: [_guarded(call)])


def _guarded(call: Callable[[], Outcome]) -> Outcome:
    """Whatever goes wrong becomes an outcome, except that the worker is gone."""
    started = time.monotonic_ns()
    try:
        outcome = call()
    except WorkerDied:
        raise
    except Exception as error:
        outcome = Outcome(failed=_failed(error))
    cost_us = (time.monotonic_ns() - started) // 1000
    return Outcome(outcome.value, outcome.failed, cost_us, outcome.publish)


def _failed(error: Exception) -> Failed:
    if isinstance(error, RequestError):
        return Failed(error.text, error.category)
    if isinstance(error, OpenRLError):
        return Failed(str(error))
    _log.error("step_failed", exc_info=error)
    if isinstance(error, OSError):  # its own text names files of the server's
        return Failed(f"the worker failed: {error.strerror or type(error).__name__}")
    return Failed(f"the worker failed: {type(error).__name__}: {error}")
