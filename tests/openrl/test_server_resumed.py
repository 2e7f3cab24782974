"""What goes on as if nothing had happened, through the SDK: resumed runs, older samplers, clients beside each other."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
import tinker

from tests.openrl.connections import connections
from tests.openrl.mortal_server import Mortal, mortal
from tests.openrl.same_bits import ADAM, Tensors, assert_same, datum, draw, folder_of, tensors, train

__all__ = ["connections"]
pytestmark = [
    # The SDK leaves its connections to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
GRACE = """
[grace]
session_s = 0.5
finished_s = 0.2
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mortal]:
    config = 'threads = 1\nlog_level = "warning"\n'
    with mortal(tmp_path_factory.mktemp("server"), config) as server:
        yield server


def service_of(server: Mortal) -> tinker.ServiceClient:
    return tinker.ServiceClient(base_url=server.url, api_key=server.key)


def new(service: tinker.ServiceClient, seed: int = 1) -> tinker.TrainingClient:
    return service.create_lora_training_client("openrl/tiny", rank=4, seed=seed).result(60)


def resumed(service: tinker.ServiceClient, path: str) -> tinker.TrainingClient:
    return service.create_training_client_from_state_with_optimizer(path).result(60)


def saved(training: tinker.TrainingClient, name: str = "end") -> str:
    return training.save_state(name).result(60).path


def forget(server: Mortal, path: str) -> None:
    """Delete a checkpoint."""
    rest = tinker.RestClient(base_url=server.url, api_key=server.key)
    rest.delete_checkpoint_from_tinker_path(path).result(60)


def in_memory(server: Mortal) -> int:
    """How many models the server has in memory."""
    lines = httpx.get(f"{server.url}/metrics", headers={"X-API-Key": server.key}).text.splitlines()
    return int(float(next(line for line in lines if line.startswith("openrl_models_in_memory ")).split()[1]))


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_run_resumed_in_a_new_session_goes_on_to_the_same_bits(server: Mortal, restarts: bool) -> None:
    with service_of(server) as first:
        never_stopped = new(first)
        train(never_stopped, range(3))
        middle = saved(never_stopped, "middle")
        told = train(never_stopped, range(3, 7))
        wanted = tensors(server, saved(never_stopped))
    if restarts:
        server.restart()
    with service_of(server) as second:
        training = resumed(second, middle)
        assert train(training, range(3, 7)) == told
        assert_same(tensors(server, saved(training)), wanted)


def test_without_the_optimizer_it_starts_from_the_same_weights_and_goes_another_way(server: Mortal) -> None:
    with service_of(server) as service:
        training = new(service)
        train(training, range(3))
        path = saved(training)
        without = service.create_training_client_from_state(path).result(60)
        first, second = train(training, range(3, 5)), train(without, range(3, 5))
        assert first[0] == second[0]
        assert first != second


def test_an_older_sampling_client_samples_as_it_did_and_training_is_unaffected(server: Mortal) -> None:
    with service_of(server) as service:
        training, alone = new(service), new(service)
        told = train(training, range(2))
        older = training.save_weights_and_get_sampling_client().result(60)
        before = [draw(older, seed) for seed in range(3)]
        told += train(training, range(2, 4))
        newer = training.save_weights_and_get_sampling_client().result(60)
        after = [draw(newer, seed) for seed in range(3)]
        assert [draw(older, seed) for seed in range(3)] == before != after
        told += train(training, range(4, 6))
        server.restart()  # both are read from their folders now
        assert [draw(older, seed) for seed in range(3)] == before
        assert [draw(newer, seed) for seed in range(3)] == after
        assert told == train(alone, range(6))
        assert_same(tensors(server, saved(training)), tensors(server, saved(alone)))


def test_a_checkpoint_deleted_in_use_is_missed_by_nobody_who_uses_it(server: Mortal) -> None:
    with service_of(server) as service:
        training = new(service)
        train(training, range(2))
        state, weights = saved(training), training.save_weights_for_sampler("drawn").result(60).path
        told = train(training, range(2, 4))
        sampling, other = service.create_sampling_client(weights).result(60), resumed(service, state)
        drawn = draw(sampling, 1)
        folder = folder_of(server, state)
        forget(server, state)
        forget(server, weights)
        server.restart()
        until(lambda: not folder.exists())  # `other` has a state of its own by now
        assert draw(sampling, 1) == drawn
        assert train(other, range(2, 4)) == told
        for path in (state, weights):
            with pytest.raises(tinker.TinkerError, match="not known"):
                service.create_training_client_from_state(path).result(60)


def alone_or_beside(server: Mortal, seed: int) -> tuple[list[Any], Tensors]:
    """A run of one client: training, and samples at the same time."""
    with service_of(server) as service:
        training = new(service, seed)
        seen = train(training, range(seed, seed + 4))
        sampling = training.save_weights_and_get_sampling_client().result(60)
        drawing = [sampling_of(sampling, number) for number in range(6)]
        seen += train(training, range(seed + 4, seed + 8))
        seen += [one() for one in drawing]
        return seen, tensors(server, saved(training))


def sampling_of(sampling: tinker.SamplingClient, seed: int) -> Callable[[], Any]:
    """Begun now, taken later."""
    params = tinker.SamplingParams(max_tokens=12 + seed, seed=seed, stop=[])
    answer = sampling.sample(tinker.ModelInput.from_ints([9 + seed, 33, 41][: 1 + seed % 3]), 2, params)
    return lambda: [(sequence.tokens, sequence.logprobs) for sequence in answer.result(60).sequences]


def test_clients_on_one_server_at_once_do_not_influence_each_other(server: Mortal) -> None:
    alone = [alone_or_beside(server, seed) for seed in range(1, 4)]
    with ThreadPoolExecutor() as threads:
        beside = list(threads.map(lambda seed: alone_or_beside(server, seed), range(1, 4)))
    for (told, weights), (told_beside, weights_beside) in zip(alone, beside, strict=True):
        assert told_beside == told
        assert_same(weights_beside, weights)


def test_who_falls_silent_is_freed_and_goes_on_with_his_next_request(server: Mortal, tmp_path: Any) -> None:
    with service_of(server) as service:
        told = train(new(service), range(4))
    with mortal(tmp_path, GRACE) as forgetful, service_of(forgetful) as service:
        training = new(service)
        seen = train(training, range(2))
        trained = training.forward_backward([datum(4), datum(5)], "cross_entropy")
        answer = trained.result(60)
        until(lambda: in_memory(forgetful) == 0)  # with gradients that wait for their step
        stepped = training.optim_step(ADAM).result(60)
        seen += [(answer.metrics, [out["logprobs"].data for out in answer.loss_fn_outputs]), stepped.metrics]
        until(lambda: in_memory(forgetful) == 0)
        seen += train(training, range(3, 4))
        assert seen == told
