"""What is done of a sampling session's samples: all of them are told of, in every life of the server."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import tinker
from hypothesis import given
from hypothesis import strategies as st
from tinker import types

from openrl.service.answers import Done, Failure
from openrl.service.completions import CLONE, UNPOLLED_US, Completion, Completions
from openrl.service.inbox import Inbox
from openrl.store import Add, Request, SqliteStore, open_store
from openrl.work import OptimResult
from tests.openrl import scripted_worker as scripted
from tests.openrl.live_server import Live
from tests.openrl.scripted_client import ME, Client, Clock, run, serving

SAMPLER = "s:sample:0"
DONE = Done(OptimResult({}))


async def ask(client: Client, sampler: str, seq: int, *prompt: int) -> str:
    one = scripted.sample(prompt)
    accepted = await client.service.samplers.sample(ME, sampler, seq, "json", scripted.encode(one), one, seeded=True)
    return accepted.request_id


def test_samples_are_told_of_once_they_are_done_and_how(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as client:
            await client.begin()
            poll = client.service.samplers.completions
            sampler = await client.service.samplers.create(ME, client.session, 0, base_model="tiny")
            assert (await poll(ME, sampler, 0, 0, 0))[0] == []
            _, cursor = await poll(ME, sampler, 0, 0, 0)
            waiting = asyncio.create_task(poll(ME, sampler, 0, cursor, 20))
            await asyncio.sleep(0)
            good = await ask(client, sampler, 0, 1)
            done, after = await waiting
            assert done == [Completion(good, failed=False)]
            bad = await ask(client, sampler, 1, 66)
            await client.answer(bad)
            assert await poll(ME, sampler, 0, cursor, 0) == ([*done, Completion(bad, failed=True)], after + 1)
            assert (await poll(ME, sampler, 0, after + 1, 0))[0] == []

    run(main)


def test_who_has_joined_a_session_hears_of_its_own_samples(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as client:
            await client.begin()
            sampler = await client.service.samplers.create(ME, client.session, 0, base_model="tiny")
            mine, others = await ask(client, sampler, 5, 1), await ask(client, sampler, 3 * CLONE, 1)
            for request_id in (mine, others):
                await client.answer(request_id)
            poll = client.service.samplers.completions
            assert (await poll(ME, sampler, 0, 0, 0))[0] == [Completion(mine, failed=False)]
            assert (await poll(ME, sampler, 3, 0, 0))[0] == [Completion(others, failed=False)]

    run(main)


def test_another_life_of_the_server_tells_of_everything_again(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as client:
            await client.begin()
            sampler = await client.service.samplers.create(ME, client.session, 0, base_model="tiny")
            first = await ask(client, sampler, 0, 1)
            await client.answer(first)
            _, cursor = await client.service.samplers.completions(ME, sampler, 0, 0, 0)
        async with serving(tmp_path) as later:
            told, _ = await later.service.samplers.completions(ME, sampler, 0, cursor + 10**9, 0)
            assert told == [Completion(first, failed=False)]

    run(main)


class Polled:
    """Requests of one client, answered in any order while it polls."""

    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self.inbox = Inbox()
        self.clock = Clock()
        self.completions = Completions(store, self.inbox, self.clock)
        self.cursor = 0
        self.heard: set[str] = set()
        self.answered: set[str] = set()

    def answer(self, failed: bool) -> None:
        request_id = f"request-{len(self.answered)}"
        self.answered.add(request_id)
        state = "failed" if failed else "done"
        self.store.commit(
            [Add(Request(request_id, ME, len(self.answered), "json", b"", 0, None, SAMPLER, state=state))]  # type: ignore[arg-type]
        )
        self.inbox.answered(request_id, Failure("no") if failed else DONE)

    async def poll(self, heard: bool) -> None:
        """One poll, whose answer may be lost on the way."""
        told, cursor = await self.completions.poll(SAMPLER, 0, self.cursor, 0)
        if heard:
            self.heard |= {one.request_id for one in told}
            self.cursor = cursor


ACTS = st.lists(st.sampled_from(["answer", "fail", "poll", "lost poll", "long silence", "restart"]), max_size=30)


@given(ACTS)
def test_none_is_missed_whatever_is_lost_forgotten_or_started_again(acts: list[str]) -> None:
    async def main() -> None:
        store = open_store(":memory:")
        polled = Polled(store)
        for act in acts:
            match act:
                case "answer" | "fail":
                    polled.answer(failed=act == "fail")
                case "poll" | "lost poll":
                    await polled.poll(heard=act == "poll")
                case "long silence":
                    polled.clock.now_us += UNPOLLED_US + 1
                case "restart":
                    polled.clock.now_us += 1
                    polled.inbox = Inbox()
                    polled.completions = Completions(store, polled.inbox, polled.clock)
        await polled.poll(heard=True)
        store.close()
        assert polled.heard == polled.answered

    asyncio.run(main())


@pytest.mark.timeout(200)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_sdk_takes_its_samples_this_way_where_it_is_told_to(sdk: Live) -> None:
    service = tinker.ServiceClient(base_url=sdk.url, api_key=sdk.key)
    holder = service.holder
    holder._client_config = holder._client_config.model_copy(update={"sample_use_retrieve_futures": True})
    sampling = service.create_sampling_client(base_model="openrl/tiny").result(60)
    params = types.SamplingParams(max_tokens=4, seed=1, stop=[])
    futures = [sampling.sample(types.ModelInput.from_ints([5, number]), 1, params) for number in range(50)]
    assert [len(future.result(60).sequences[0].tokens) for future in futures] == [4] * 50
    wrong = sampling.sample(types.ModelInput.from_ints([10**6]), 1, params)
    with pytest.raises(tinker.RequestFailedError, match="vocabulary"):
        wrong.result(60)
    service.close("success")
    assert '"path":"/api/v1/retrieve_futures","status":200' in (sdk.folder / "server.log").read_text()
