"""The service over a scripted worker: what a client sees of its requests, and what becomes of them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from openrl.errors import RequestError, StoreError
from openrl.queue import Limits
from openrl.service import Done, Failure, Pending, Ready, Settings
from openrl.store import Request, open_store
from openrl.work import ForwardBackward, ForwardBackwardResult, ModelSpec, OptimResult, Result, Work
from openrl.worker import Base
from tests.openrl import scripted_worker as scripted
from tests.openrl.scripted_client import (
    FB,
    ME,
    SPEC,
    STEP,
    Client,
    FullDisk,
    expected,
    run,
    serving,
    until,
)
from tests.openrl.scripted_worker import ScriptedWorker


def test_a_training_step_is_carried_out_and_answered(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as client:
            await client.begin()
            first, second = await client.submit(1, FB[0]), await client.submit(2, STEP)
            assert isinstance(await client.value(first), ForwardBackwardResult)
            assert isinstance(await client.value(second), OptimResult)
            assert client.weights() == expected(FB[0], STEP)
            assert client.model == f"{client.session}:train:0"

    run(main)


def test_requests_run_in_the_order_of_their_numbers_whatever_order_they_come_in(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as client:
            await client.begin()
            third, second = await client.submit(3, STEP), await client.submit(2, FB[2])
            waiting = await client.service.requests.retrieve(ME, third.request_id, 0.01)
            assert waiting == Pending("active", f"request 1 of model {client.model} has not arrived yet")
            first = await client.submit(1, FB[1])
            for accepted in (first, second, third):
                await client.value(accepted)
            assert client.weights() == expected(FB[1], FB[2], STEP)

    run(main)


def test_a_duplicate_gets_the_id_of_the_first_and_runs_once_and_other_content_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as client:
            await client.begin()
            both = await asyncio.gather(client.submit(1, FB[1]), client.submit(1, FB[1]))
            assert both[0] == both[1]
            await client.value(both[0])
            assert await client.submit(1, FB[1]) == both[0]
            with pytest.raises(RequestError, match="sent before with other content"):
                await client.submit(1, FB[2])
            assert client.weights() == expected(FB[1])
            again = await client.service.models.create(ME, client.session, 0, SPEC)
            assert await client.value(again) == Ready(client.model)

    run(main)


def test_a_refused_request_uses_up_its_number_and_fails_by_itself(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as client:
            await client.begin()
            refused = await client.service.requests.refuse(ME, client.model, 1, b"?", "not understood")
            assert await client.answer(refused) == Failure("not understood", "user")
            await client.value(await client.submit(2, FB[2]))
            assert client.weights() == expected(FB[2])

    run(main)


def test_failures_are_answered_with_whose_fault_they_are_and_the_next_request_runs(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as client:
            await client.begin()
            assert await client.loses(1, "bad") == Failure("loss 'bad' is not known", "user")
            assert await client.loses(2, "broken") == Failure("the worker failed: ArithmeticError: broken", "server")
            await client.value(await client.submit(3, FB[3]))
            assert client.weights() == expected(FB[3])

    run(main)


def test_a_model_that_cannot_be_made_fails_what_is_asked_of_it_and_no_other(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as client:
            await client.begin()
            wrong = await client.service.models.create(ME, client.session, 1, ModelSpec("huge"))
            work = scripted.encode(FB[1])
            follows = await client.service.requests.submit(ME, wrong.model_id, 1, "json", work, FB[1])
            error = "base model 'huge' is not served here: tiny is"
            assert await client.answer(wrong) == Failure(error, "user")
            assert await client.answer(follows) == Failure(f"model {wrong.model_id} is not available: {error}", "user")
            await client.value(await client.submit(1, FB[1]))

    run(main)


def test_a_worker_that_dies_is_brought_back_and_every_unit_counts_once(tmp_path: Path) -> None:
    async def main() -> None:
        settings = Settings(queue=Limits(replay_units=4))
        async with serving(tmp_path, settings=settings) as client:
            await client.begin()
            for seq in range(1, 7):
                await client.value(await client.submit(seq, FB[seq]))
            assert isinstance(await client.loses(7, "deadly:2"), Done)
            assert client.weights() == expected(*FB[1:7], ForwardBackward([], "deadly:2"))
            assert f"load_durable {client.model}" in client.worker.calls

    run(main)


def test_a_request_that_kills_the_worker_each_time_fails_and_other_models_go_on(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as client:
            await client.begin()
            other = Client(client.service, client.worker)
            await other.begin()
            await other.value(await other.submit(1, FB[1]))
            failure = await client.loses(1, "deadly")
            assert failure == Failure("the worker died 3 times in a row on this request: it is given up", "server")
            await client.value(await client.submit(2, FB[2]))
            await other.value(await other.submit(2, FB[2]))
            assert (client.weights(), other.weights()) == (expected(FB[2]), expected(FB[1], FB[2]))

    run(main)


def test_a_restart_goes_on_where_the_record_ends(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as client:
            await client.begin()
            done = await client.submit(1, FB[1])
            value = await client.value(done)
            early = await client.submit(3, FB[3])
            session, model = client.session, client.model
        async with serving(tmp_path) as client:
            client.session, client.model = session, model
            assert (await client.value(done)).metrics == value.metrics
            await client.submit(2, FB[2])
            await client.value(early)
            assert client.weights() == expected(*FB[1:4])
            assert await client.submit(1, FB[1]) == done

    run(main)


def test_unreadable_state_fails_its_own_model_with_a_reason_and_no_other(tmp_path: Path) -> None:
    async def main() -> None:
        settings = Settings(queue=Limits(replay_units=1))
        async with serving(tmp_path, settings=settings) as client:
            await client.begin()
            other = Client(client.service, client.worker)
            await other.begin()
            for one in (client, other):
                await one.value(await one.submit(1, FB[1]))
                await one.value(await one.submit(2, FB[2]))
            models = [(one.session, one.model) for one in (client, other)]
        for file in (tmp_path / "states" / models[0][1]).glob("*/weights"):
            file.unlink()
        async with serving(tmp_path, settings=settings) as client:
            client.session, client.model = models[0]
            failure = await client.answer(await client.submit(3, FB[3]))
            assert isinstance(failure, Failure)
            assert failure.category == "server"
            assert f"model {client.model} is not available" in failure.error
            client.session, client.model = models[1]
            await client.value(await client.submit(3, FB[3]))
            assert client.weights() == expected(*FB[1:4])

    run(main)


def test_a_request_that_waits_can_be_cancelled_and_the_line_goes_on_without_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as client:
            await client.begin()
            second = await client.submit(2, FB[2])
            assert await client.service.requests.cancel(ME, second.request_id)
            assert await client.answer(second) == Failure("cancelled at the client's wish", "user")
            await client.value(await client.submit(1, FB[1]))
            await client.value(await client.submit(3, FB[3]))
            assert not await client.service.requests.cancel(ME, second.request_id)
            assert client.weights() == expected(FB[1], FB[3])

    run(main)


def test_a_crowded_line_says_so(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path, settings=Settings(crowded=2, most_waiting=3)) as client:
            await client.begin()
            waiting = [await client.submit(seq, FB[seq]) for seq in (2, 3, 4)]
            pending = await client.service.requests.retrieve(ME, waiting[0].request_id, 0)
            assert pending == Pending("paused_capacity", "3 requests wait in this line")
            with pytest.raises(RequestError, match="3 requests wait, and 3 may"):
                await client.submit(5, FB[5])

    run(main)


def test_a_request_is_in_the_store_before_its_sender_hears_of_it_and_many_share_a_transaction(tmp_path: Path) -> None:
    async def main() -> None:
        store = FullDisk(tmp_path / "store")
        async with serving(tmp_path, store=store) as client:
            await client.begin()
            before = store.commits
            accepted = await asyncio.gather(*(client.submit(seq, FB[0]) for seq in range(2, 102)))
            assert store.commits - before < 5
            other = open_store(tmp_path / "store")
            assert all(other.get(Request, one.request_id) for one in accepted)
            other.close()

    run(main)


def test_while_the_disk_is_full_new_requests_are_refused_and_then_all_goes_on(tmp_path: Path) -> None:
    async def main() -> None:
        store = FullDisk(tmp_path / "store")
        settings = Settings(store_retry_s=0.01)
        async with serving(tmp_path, ScriptedWorker(delay_s=0.05), settings, store=store) as client:
            await client.begin()
            accepted = await client.submit(1, FB[1])
            store.full = True
            await until(lambda: bool(client.service.stats().stalled))
            pending = await client.service.requests.retrieve(ME, accepted.request_id, 0)
            assert isinstance(pending, Pending)
            assert pending.queue_state == "paused_capacity"
            assert pending.reason.startswith("the server cannot write its store")
            with pytest.raises(StoreError, match="disk full"):
                await client.submit(2, FB[2])
            store.full = False
            await client.value(accepted)
            await client.value(await client.submit(2, FB[2]))
            assert client.weights() == expected(FB[1], FB[2])

    run(main)


def test_a_second_service_on_the_same_folder_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path):
            with pytest.raises(StoreError, match="another service runs on this folder"):
                async with serving(tmp_path, store=open_store(tmp_path / "other")):
                    raise AssertionError("it must not start")

    run(main)


class Threaded(ScriptedWorker):
    """Remembers which threads called it."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: set[int] = set()

    def bases(self) -> Sequence[Base]:
        self.threads.add(threading.get_ident())
        return super().bases()

    def run(self, model_id: str, work: Work) -> Result | None:
        self.threads.add(threading.get_ident())
        return super().run(model_id, work)


def test_one_thread_that_is_not_the_loops_carries_out_all_work(tmp_path: Path) -> None:
    async def main() -> None:
        worker = Threaded()
        async with serving(tmp_path, worker) as client:
            await client.begin()
            for seq in range(1, 6):
                await client.value(await client.submit(seq, FB[seq]))
        assert len(worker.threads) == 1
        assert threading.get_ident() not in worker.threads

    run(main)
