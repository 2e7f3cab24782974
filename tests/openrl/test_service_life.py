"""How sessions, checkpoints, results and memory come and go, and who may see them."""

from __future__ import annotations

from pathlib import Path

import pytest

from openrl.errors import RequestError, Unknown
from openrl.service import Failure, Ready, Saved
from tests.openrl import scripted_worker as scripted
from tests.openrl.scripted_client import (
    FB,
    ME,
    SPEC,
    Clock,
    expected,
    run,
    sampling,
    serving,
    until,
)


def test_a_save_is_published_once_and_a_model_made_from_it_goes_on_from_there(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as client:
            await client.begin()
            await client.submit(1, FB[1])
            requests = client.service.requests
            saved = await client.value(await requests.save_state(ME, client.model, 2, "one"))
            path = f"tinker://{client.model}/weights/one"
            assert saved == Saved(path, None, 16)
            taken = await client.answer(await requests.save_state(ME, client.model, 3, "one"))
            assert isinstance(taken, Failure)
            assert "exists" in taken.error
            assert taken.category == "user"
            loaded = await client.service.models.load(ME, client.session, 1, path, optimizer=True)
            assert await client.value(loaded) == Ready(loaded.model_id, path)
            assert client.worker.models[loaded.model_id] == expected(FB[1])
            page = await client.service.checkpoints.list(ME, client.model)
            assert [checkpoint.path for checkpoint in page.items] == [path]

    run(main)


def test_names_that_lead_out_of_their_folder_fail_as_the_users_mistake(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as client:
            await client.begin()
            for seq, name in enumerate(("..", "a/b", "", "x" * 300), 1):
                failure = await client.answer(await client.service.requests.save_state(ME, client.model, seq, name))
                assert isinstance(failure, Failure)
                assert failure.category == "user"
            await client.value(await client.submit(5, FB[5]))

    run(main)


def test_what_belongs_to_somebody_else_looks_as_if_it_were_not_there(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as client:
            await client.begin()
            accepted = await client.submit(1, FB[1])
            saved = await client.value(await client.service.requests.save_state(ME, client.model, 2, "one"))
            service = client.service
            for call in (
                service.sessions.get("you", client.session),
                service.models.get("you", client.model),
                service.models.create("you", client.session, 5, SPEC),
                service.requests.retrieve("you", accepted.request_id, 0),
                service.requests.cancel("you", accepted.request_id),
                service.checkpoints.delete("you", saved.path),
                service.checkpoints.weights_info("you", saved.path),
                service.samplers.get("you", "nothing"),
            ):
                with pytest.raises(Unknown):
                    await call
            await service.checkpoints.publish(ME, saved.path)
            assert await service.checkpoints.weights_info("you", saved.path) == SPEC
            with pytest.raises(Unknown):
                await service.checkpoints.unpublish("you", saved.path)

    run(main)


def test_a_session_that_falls_silent_frees_its_memory_and_its_next_request_brings_it_back(tmp_path: Path) -> None:
    async def main() -> None:
        clock = Clock()
        async with serving(tmp_path, clock=clock) as client:
            await client.begin()
            await client.value(await client.submit(1, FB[1]))
            await client.service.sweep()
            assert client.model in client.worker.models
            clock.now_us += 901_000_000
            await client.service.sweep()
            await until(lambda: client.model not in client.worker.models)
            await client.service.sweep()
            assert client.worker.calls[-2:] == [f"save_durable {client.model}", f"drop {client.model}"]
            await client.value(await client.submit(2, FB[2]))
            assert client.weights() == expected(FB[1], FB[2])

    run(main)


def test_a_result_expires_with_a_reason_and_so_do_checkpoints_and_snapshots(tmp_path: Path) -> None:
    async def main() -> None:
        clock = Clock()
        async with serving(tmp_path, clock=clock) as client:
            await client.begin()
            accepted = await client.submit(1, FB[1])
            requests = client.service.requests
            saved = await client.value(await requests.save_state(ME, client.model, 2, "one", ttl_seconds=60))
            sampler = await sampling(client, 3, 0)
            clock.now_us += 25 * 3_600_000_000
            with pytest.raises(Unknown):
                await client.service.checkpoints.weights_info(ME, saved.path)
            await client.service.sweep()
            await client.service.sweep()
            failure = await client.answer(accepted)
            assert isinstance(failure, Failure)
            assert failure.category == "user"
            assert "expired" in failure.error
            assert list((tmp_path / "checkpoints").iterdir()) == []
            one = scripted.sample((1,))
            with pytest.raises(RequestError, match="expired"):
                await client.service.samplers.sample(ME, sampler, 9, "j", scripted.encode(one), one, seeded=True)

    run(main)


def test_a_cancelled_session_fails_what_waits_and_can_be_taken_up_again(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as client:
            await client.begin()
            await client.value(await client.submit(1, FB[1]))
            waiting = [await client.submit(seq, FB[seq]) for seq in (3, 4)]
            assert await client.service.sessions.cancel(ME, client.session) == 2
            for accepted in waiting:
                assert await client.answer(accepted) == Failure("cancelled: the session was", "user")
            await until(lambda: client.model not in client.worker.models)
            await client.value(await client.submit(2, FB[2]))
            assert client.weights() == expected(FB[1], FB[2])

    run(main)


def test_a_copied_checkpoint_outlives_the_one_it_was_copied_from(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as client:
            await client.begin()
            saved = await client.value(await client.service.requests.save_state(ME, client.model, 1, "one"))
            copy = await client.service.checkpoints.copy(ME, saved.path, client.session, 7)
            assert copy == f"tinker://{client.session}:train:7/weights/one"
            await client.service.checkpoints.delete(ME, saved.path)
            await client.service.sweep()
            loaded = await client.service.models.load(ME, client.session, 1, copy, optimizer=False)
            await client.value(loaded)
            assert client.worker.models[loaded.model_id] == expected()

    run(main)


def test_sessions_are_listed_and_tell_what_belongs_to_them(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as client:
            await client.begin()
            sessions = client.service.sessions
            sampler = await client.service.samplers.create(ME, client.session, 3, base_model="tiny")
            info = await sessions.get(ME, client.session)
            assert (info.training_run_ids, info.sampler_ids) == ((client.model,), (sampler,))
            once = [await sessions.create(ME, idempotency_key="k") for _ in range(2)]
            assert once[0] == once[1]
            assert (await sessions.list(ME)).total == 2
            assert (await client.service.models.list(ME)).items[0].model_id == client.model
            await sessions.finish(ME, client.session, "errored", "why")
            ended = (await sessions.get(ME, client.session)).session
            assert (ended.end_reason, ended.end_detail) == ("errored", "why")
            await sessions.heartbeat(ME, client.session)
            assert (await sessions.get(ME, client.session)).session.ended_us is None

    run(main)
