"""Two thousand samples at once, as a recipe asks for them: all are answered, and the server's memory stays bounded."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import tinker

from tests.openrl.connections import connections
from tests.openrl.mortal_server import Mortal, mortal

__all__ = ["connections"]
pytestmark = [
    # The SDK leaves its connections to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
MANY = 2000
MOST_BYTES = 512 * 2**20  # beyond what the server has after its first samples


@contextmanager
def watched(server: Mortal) -> Iterator[list[int]]:
    """What the server has in memory: at first, then at its most."""
    seen = [server.rss_bytes()] * 2
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.05):
            seen[1] = max(seen[1], server.rss_bytes())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def draw_many(sampling: tinker.SamplingClient, first: int) -> dict[int, list[int]]:
    """By seed; prompts are of different lengths."""

    def begin(seed: int) -> tinker.APIFuture[tinker.types.SampleResponse]:
        params = tinker.SamplingParams(max_tokens=16, seed=seed, stop=[])
        return sampling.sample(tinker.ModelInput.from_ints([9 + seed % 700] * (1 + seed % 60)), 1, params)

    begun = {seed: begin(seed) for seed in range(first, first + MANY)}
    return {seed: list(one.result(280).sequences[0].tokens) for seed, one in begun.items()}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_thousand_samples_at_once_are_answered_in_bounded_memory(tmp_path: Path) -> None:
    with (
        mortal(tmp_path, 'log_level = "warning"\n') as server,
        tinker.ServiceClient(base_url=server.url, api_key=server.key) as service,
    ):
        sampling = service.create_sampling_client(base_model="openrl/tiny").result(60)
        for _ in range(2):
            sampling.compute_logprobs(tinker.ModelInput.from_ints([9])).result(60)
        with watched(server) as memory:
            drawn = draw_many(sampling, 0)
        print(f"{memory[0] / 2**20:.0f} MiB before, {memory[1] / 2**20:.0f} MiB at most")
        assert all(len(tokens) == 16 for tokens in drawn.values())
        assert memory[1] - memory[0] < MOST_BYTES
        with watched(server) as again:
            draw_many(sampling, MANY)
        print(f"{again[0] / 2**20:.0f} MiB before, {again[1] / 2**20:.0f} MiB at most")
        assert again[1] - memory[1] < MOST_BYTES / 8


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_thousand_samples_outlive_the_server_that_was_to_draw_them(tmp_path: Path) -> None:
    with (
        mortal(tmp_path, 'log_level = "warning"\n') as server,
        tinker.ServiceClient(base_url=server.url, api_key=server.key) as service,
    ):
        sampling = service.create_sampling_client(base_model="openrl/tiny").result(60)
        killing = threading.Timer(2.0, server.restart)
        killing.start()
        drawn = draw_many(sampling, 0)
        killing.join()
        assert draw_many(sampling, 0) == drawn
