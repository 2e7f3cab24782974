"""Sampling sessions and samples, over a scripted worker."""

from __future__ import annotations

import asyncio
from pathlib import Path

from openrl.service import Done, Failure
from tests.openrl import scripted_worker as scripted
from tests.openrl.scripted_client import (
    FB,
    ME,
    run,
    sampled,
    sampling,
    serving,
)


def test_an_older_sampling_session_samples_as_it_did_after_more_training(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as client:
            await client.begin()
            old = await sampling(client, 1, 0)
            before = await sampled(client, old, 0)
            await client.submit(2, FB[2])
            new = await sampling(client, 3, 1)
            assert (await sampled(client, new, 0)).sequences[0].tokens.tolist() != before.sequences[0].tokens.tolist()
            again = await sampled(client, old, 1)
            assert again.sequences[0].tokens.tolist() == before.sequences[0].tokens.tolist()

    run(main)


def test_a_retried_sample_keeps_its_ids_and_a_missing_seed_follows_from_session_and_number(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as client:
            await client.begin()
            sampler = await client.service.samplers.create(ME, client.session, 0, base_model="tiny")
            one = scripted.sample((1,), 3)
            ask = [(seq, scripted.encode(one)) for seq in (0, 0, 1)]
            accepted = [
                await client.service.samplers.sample(ME, sampler, seq, "json", payload, one, seeded=False)
                for seq, payload in ask
            ]
            assert accepted[0] == accepted[1]
            drawn = [(await client.value(one.request_id)).sequences[0].tokens.tolist() for one in accepted]
            assert drawn[0] != drawn[2]

    run(main)


def test_many_samples_are_drawn_in_batches_and_one_that_kills_is_found_and_given_up(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as client:
            await client.begin()
            sampler = await client.service.samplers.create(ME, client.session, 0, base_model="tiny")
            prompts = [(1, number) for number in range(40)] + [(99,), (66,)]
            asked = []
            for seq, prompt in enumerate(prompts):
                one = scripted.sample(prompt)
                payload = scripted.encode(one)
                asked.append(client.service.samplers.sample(ME, sampler, seq, "json", payload, one, seeded=True))
            accepted = await asyncio.gather(*asked)
            answers = await asyncio.gather(*(client.answer(one.request_id) for one in accepted))
            assert all(isinstance(answer, Done) for answer in answers[:40])
            assert "given up" in answers[40].error
            assert answers[41] == Failure("token 66 is beyond the vocabulary", "user")

    run(main)
