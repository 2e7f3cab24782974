"""Queue and store together under attack: every commit may be the last thing that a process did.

Clients send requests in any order and again, cancel some, and some of their work kills its worker; workers and the
whole process die between any two steps. Whatever happened, in the end every model's weights are those of its accepted
requests in order, each once, and every request has exactly one answer, which never changed.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from structlog.testing import capture_logs

from openrl.errors import WorkerDied
from openrl.queue import Failed, Lease, Limits
from openrl.service.answers import Saved, decode_value
from openrl.service.held import Held
from openrl.service.ledger import Ledger
from openrl.service.orders import Create, Save, encode_order
from openrl.service.paths import path_of
from openrl.service.tasks import Task, Tasks
from openrl.store import Add, Checkpoint, Model, Payload, Request, Result, Sampler, SqliteStore, Write, open_store
from openrl.work import ForwardBackward, ForwardBackwardResult, ModelSpec, OptimStep, Work
from tests.openrl import scripted_worker as scripted
from tests.openrl.scripted_worker import ScriptedWorker

LIMITS = Limits(replay_units=3, deaths=4, restarts=10_000, batch_sequences=3)
SPEC = ModelSpec("tiny")
MODELS = ("a", "b", "c")
KINDS = (*["grad"] * 4, *["step"] * 3, "forward", "forward", "save", "save", "bad", "bad", "deadly", "deadly:2")
FATES = st.sampled_from(("lives", "lives", "lives", "dies before", "dies after"))
WINDOW = 4


class Died(Exception):
    """The whole process."""


class Attack(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="openrl-machine-"))
        self.sent: dict[tuple[str, int], Request] = {}
        self.kinds: dict[str, str] = {}
        self.cancelled: set[str] = set()
        self.answers: dict[str, tuple[Any, ...]] = {}
        self.sabotaged: set[str] = set()
        self.random_deaths = 0
        self.stores: list[SqliteStore] = []
        self.store: SqliteStore = open_store(self.folder / "store")
        self.store.commit([Add(Sampler(name, "", "me", "tiny", 0, 0)) for name in ("s0", "s1")])
        self._process()
        for name in MODELS:
            self.store.commit([Add(Model(name, "s", "me", SPEC, 0, 0))])
            self._submit(self._request(name, 0, "own:create", True), encode_order(Create()))

    # what happens

    @rule(model=st.sampled_from(MODELS), kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=6), fate=FATES)
    def client_sends_in_order(self, model: str, kinds: list[str], fate: str) -> None:
        for kind in kinds[:-1]:
            self._send(model, self._next_seq(model), kind, "lives")
        self._guarded(lambda: self._send(model, self._next_seq(model), kinds[-1], fate))

    @rule(model=st.sampled_from(MODELS), ahead=st.integers(0, WINDOW), kind=st.sampled_from(KINDS), fate=FATES)
    def client_sends_ahead(self, model: str, ahead: int, kind: str, fate: str) -> None:
        first = self._next_seq(model)
        if (model, first + ahead) not in self.sent:
            self._guarded(lambda: self._send(model, first + ahead, kind, fate))

    @rule(model=st.sampled_from(MODELS), data=st.data())
    def client_sends_again(self, model: str, data: st.DataObject) -> None:
        known = [seq for (name, seq) in self.sent if name == model]
        seq = data.draw(st.sampled_from(known))
        found = self.store.find(Request, model_id=model, seq=seq)
        assert [request.request_id for request in found] == [self.sent[model, seq].request_id]
        self.ledger.accepted(found[0], 0)

    @rule(session=st.sampled_from(("s0", "s1")), token=st.sampled_from((1, 2, 3, 66, 99)), fate=FATES)
    def client_samples(self, session: str, token: int, fate: str) -> None:
        seq = sum(name == session for name, _ in self.sent)
        request = msgspec.structs.replace(self._request(session, seq, "json"), model_id=None, sampler_id=session)
        payload = scripted.encode(scripted.sample((token, seq)))
        self._guarded(lambda: self._submit(request, payload, fate))

    @rule(data=st.data(), fate=FATES)
    def client_cancels(self, data: st.DataObject, fate: str) -> None:
        request = data.draw(st.sampled_from(list(self.sent.values())))
        if request.seq > 0 or request.model_id is None:
            self._guarded(lambda: self._cancel(request, fate))

    @precondition(lambda self: self.lease is None)
    @rule(fate=FATES)
    def step_begins(self, fate: str) -> None:
        self._guarded(lambda: self._begin(fate))

    @precondition(lambda self: self.lease is not None)
    @rule(fate=FATES, worked=st.booleans())
    def step_ends(self, fate: str, worked: bool) -> None:
        """With `worked` false the process dies while the worker works."""
        self._guarded(lambda: self._end(fate if worked else "dies at work"))

    @rule(steps=st.integers(1, 12), fate=FATES, worked=st.booleans())
    def work_goes_on(self, steps: int, fate: str, worked: bool) -> None:
        """Several steps in a row, of which the last ends so."""
        for number in range(steps):
            if self.lease is None:
                self._begin("lives")
            if self.lease is None:
                return
            ends = "lives" if number < steps - 1 else fate if worked else "dies at work"
            self._guarded(partial(self._end, ends))

    @precondition(lambda self: self.random_deaths < 3)
    @rule(fate=FATES)
    def worker_dies(self, fate: str) -> None:
        self.random_deaths += 1
        self.worker.models.clear()
        self._guarded(lambda: self._worker_died(fate))

    @rule()
    def process_dies(self) -> None:
        self._process()

    @rule(model=st.sampled_from(MODELS))
    def model_is_released(self, model: str) -> None:
        self.ledger.queue.released(model)
        self.ledger.queue.forgotten(model)

    @precondition(lambda self: self.lease is None and not self.sabotaged)
    @rule(model=st.sampled_from(MODELS[:1]), really=st.integers(0, 9))
    def disk_loses_state(self, model: str, really: int) -> None:
        folder = self._model(model).durable_folder
        if folder and really == 0:
            shutil.rmtree(folder)
            self.sabotaged.add(model)

    # what must hold

    @invariant()
    def queue_agrees_with_itself(self) -> None:
        self.ledger.queue.check()

    @invariant()
    def no_answer_ever_changes(self) -> None:
        for request in self.sent.values():
            found = self.store.get(Request, request.request_id)
            assert found is not None
            result = self.store.get(Result, request.request_id)
            answer = (found.state, found.error, result and result.body)
            if found.state != "waiting":
                assert self.answers.setdefault(request.request_id, answer) == answer

    def teardown(self) -> None:
        try:
            self._finish()
            self.no_answer_ever_changes()
            assert set(self.answers) == {request.request_id for request in self.sent.values()}
            for model in MODELS:
                self._check_model(model)
            self._check_samples()
        finally:
            for store in (*self.stores, self.store):
                store.close()
            shutil.rmtree(self.folder)

    # how it is done

    def _process(self) -> None:
        """A new process: what was in memory is gone. The file is left as a killed process leaves it."""
        self.stores.append(self.store)
        self.store = open_store(self.folder / "store")
        self.worker = ScriptedWorker()
        self.ledger = Ledger(self.store, LIMITS)
        self.tasks = Tasks(self.store, self.worker, scripted.decode, self.folder / "states", Held(0))
        self.lease: Lease | None = None
        self._commit(self.ledger.restore(0), "lives")

    def _guarded(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Died:
            self._process()

    def _commit(self, writes: Sequence[Write], fate: str) -> None:
        if fate == "dies before":
            raise Died
        self.store.commit(writes)
        if fate == "dies after":
            raise Died

    def _next_seq(self, model: str) -> int:
        return next(seq for seq in range(1, 10_000) if (model, seq) not in self.sent)

    def _request(self, model: str, seq: int, kind: str, mutates: bool = False) -> Request:
        return Request(f"{model}-{seq}", "me", seq, kind, b"", 0, model, mutates=mutates)

    def _send(self, model: str, seq: int, kind: str, fate: str) -> None:
        if kind == "save":
            folder = str(self.folder / "saves" / f"{model}-{seq}")
            order = Save("training", folder, f"n{seq}", path_of(model, "training", f"n{seq}"))
            request = msgspec.structs.replace(self._request(model, seq, "own:save"), settles=True)
            return self._submit(request, encode_order(order), fate)
        work = _work(kind, seq)
        self.kinds[f"{model}-{seq}"] = kind
        mutates = not (isinstance(work, ForwardBackward) and work.forward_only)
        self._submit(self._request(model, seq, "json", mutates), scripted.encode(work), fate)

    def _submit(self, request: Request, payload: bytes, fate: str = "lives") -> None:
        if fate == "dies before":
            raise Died
        self.sent[request.model_id or request.sampler_id or "", request.seq] = request
        self._commit([Add(request), Add(Payload(request.request_id, payload))], fate)
        if request.model_id is not None:
            self._commit(self.ledger.accepted(request, 0), "lives")
        else:
            sampler = self.store.get(Sampler, request.sampler_id or "")
            assert sampler is not None
            self.ledger.sample_accepted(request, sampler)

    def _cancel(self, request: Request, fate: str) -> None:
        writes = self.ledger.cancelled(request.request_id, Failed("cancelled", "user"), 0)
        self._commit(writes, fate)
        if writes:
            self.cancelled.add(request.request_id)

    def _begin(self, fate: str) -> None:
        self.lease, writes = self.ledger.lease("worker")
        self._commit(writes, fate)

    def _end(self, fate: str) -> None:
        assert self.lease is not None
        lease, self.lease = self.lease, None
        task: Task = self.tasks.task(lease, 0)
        try:
            outcomes = task.call()
        except WorkerDied:
            return self._worker_died("lives" if fate == "dies at work" else fate)
        if fate == "dies at work":
            raise Died
        self._commit(self.ledger.finished(lease, outcomes, 0, task.folder), fate)

    def _worker_died(self, fate: str) -> None:
        self.lease = None
        self._commit(self.ledger.worker_died("worker", 0), fate)

    def _finish(self) -> None:
        """The clients send what is missing, and everything runs to its end, which does not come undisturbed either."""
        rng = random.Random(len(self.sent))
        for model in MODELS:
            for seq in range(1, max(seq for name, seq in self.sent if name == model)):
                if (model, seq) not in self.sent:
                    self._send(model, seq, "grad", "lives")
        for _ in range(10_000):
            if self.lease is None:
                self._begin("lives")
            if self.lease is None:
                return
            (fate,) = rng.choices(("lives", "dies before", "dies after", "dies at work"), (80, 1, 1, 1))
            self._guarded(partial(self._end, fate))
        raise AssertionError("the queue never comes to an end")

    def _check_model(self, model: str) -> None:
        line_lost = self._model(model).lost
        assert line_lost is None or model in self.sabotaged, line_lost
        weights = scripted.start(SPEC)
        for seq in sorted(seq for name, seq in self.sent if name == model and seq > 0):
            weights = self._check_unit(model, seq, weights, line_lost is not None)
        if model not in self.sabotaged:
            assert self._brought_back(model) == weights

    def _check_unit(self, model: str, seq: int, weights: str, lost: bool) -> str:
        """The weights after this unit."""
        request = self.store.get(Request, f"{model}-{seq}")
        assert request is not None
        if request.state == "failed":
            excused = request.request_id in self.cancelled or "given up" in (request.error or "") or lost
            assert excused or request.error in ("loss 'bad' is not known", "cancelled"), request
            return weights
        result = self.store.get(Result, request.request_id)
        assert result is not None
        value = decode_value(request.result_type or "", result.body)
        if isinstance(value, Saved):
            checkpoint = self.store.get(Checkpoint, value.path or "")
            assert checkpoint is not None
            assert (Path(checkpoint.folder) / "weights").read_text() == weights
            return weights
        weights = scripted.after(weights, self._sent_work(request))
        if isinstance(value, ForwardBackwardResult):
            assert list(value.metrics) == [f"{weights}:sum"]
        return weights

    def _sent_work(self, request: Request) -> Work:
        kind = self.kinds[request.request_id]
        return _work(kind, request.seq)

    def _brought_back(self, model: str) -> str:
        """What the model's weights are for who asks for it next."""
        seq = 1 + max(seq for name, seq in self.sent if name == model)
        self._send(model, seq, "forward", "lives")
        while self.lease is not None or self.ledger.queue.is_waiting(f"{model}-{seq}"):
            if self.lease is None:
                self._begin("lives")
            self._end("lives")
        result = self.store.get(Result, f"{model}-{seq}")
        assert result is not None
        value = decode_value("ForwardBackwardResult", result.body)
        assert isinstance(value, ForwardBackwardResult)
        return next(iter(value.metrics)).removesuffix(":sum")

    def _check_samples(self) -> None:
        for request in self.sent.values():
            found = self.store.get(Request, request.request_id)
            if found is None or found.sampler_id is None or found.state == "done":
                continue
            excused = ("token 66 is beyond the vocabulary", "cancelled")
            assert found.error in excused or "given up" in (found.error or ""), found

    def _model(self, model: str) -> Model:
        found = self.store.get(Model, model)
        assert found is not None
        return found


def _work(kind: str, seq: int) -> ForwardBackward | OptimStep:
    if kind == "step":
        return OptimStep(float(seq))
    loss = f"grad{seq}" if kind in ("grad", "forward") else kind
    return ForwardBackward([], loss, {}, kind == "forward")


@pytest.mark.timeout(4 * 3600)
def test_nothing_is_lost_nothing_counts_twice_and_no_answer_changes() -> None:
    with capture_logs():
        run_state_machine_as_test(Attack, settings=settings(stateful_step_count=50))
