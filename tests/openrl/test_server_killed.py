"""`openrl serve` killed again and again in the middle of a training run of the SDK, which must not notice.

The loop is an ordinary one. It goes on until all deaths have been died, then a second server, which nobody kills, is
given as many steps: losses, log-probabilities, samples and the weights of all checkpoints must be the same, to the bit.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import tinker
from msgspec import Struct

from tests.openrl.connections import connections
from tests.openrl.mortal_server import Mortal, Place, mortal
from tests.openrl.same_bits import ADAM, assert_same, datum, draw, tensors

__all__ = ["connections"]
pytestmark = [
    # The SDK leaves its connections to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

# State is made durable often, so that deaths find it at every stage.
CONFIG = """
threads = 1
log_level = "warning"
[durability]
requests = 7
"""
COMMIT = "openrl.store.sqlite:SqliteStore.commit"
RUN = "openrl.torch_worker:TorchWorker.run"
DRAW = "openrl.torch_worker:TorchWorker.sample"
PERSIST = "openrl.torch_worker:TorchWorker.save_durable"
BRING_BACK = "openrl.torch_worker:TorchWorker.load_durable"
WRITTEN = "openrl.folders:_settle"  # a folder is full, and does not yet have its name
TIDY = "openrl.service.engine:shutil.rmtree"


class Moment(Struct, frozen=True):
    """A death that comes from outside: so long after the server can be called, or after it was `started`."""

    after_s: float
    started: bool = False


Death = Place | Moment
A_FEW: tuple[Death, ...] = (
    Place(COMMIT, after=True, nth=40),
    Place(RUN, after=True, nth=9),
    Place(BRING_BACK, after=True),
    Place(WRITTEN, nth=2),
    Moment(0.25),
)


def drawn(count: int, rng: random.Random) -> list[Death]:
    """All kinds of deaths, in any order; those at the start of a server seldom follow each other."""

    def of_any_kind() -> Death:
        match rng.randrange(10):
            case 0:
                return Moment(rng.uniform(0, 0.5), started=True)
            case 1:
                return Place(BRING_BACK, after=rng.random() < 0.5)
            case 2:
                return Place(RUN, after=rng.random() < 0.5, nth=rng.randint(1, 3))
            case 3 | 4:
                return Moment(rng.uniform(0, 0.6))
        function, most = rng.choice([(COMMIT, 60), (RUN, 30), (DRAW, 4), (PERSIST, 4), (WRITTEN, 6), (TIDY, 3)])
        return Place(function, after=rng.random() < 0.5, nth=rng.randint(1, most))

    return [of_any_kind() for _ in range(count)]


def die_and_rise(server: Mortal, deaths: Sequence[Death]) -> None:
    """Bring all these deaths on a server that is up, and leave it up."""
    server.kill()
    for death in deaths:
        server.until_dead()
        server.start(death if isinstance(death, Place) else None)
        if isinstance(death, Moment):
            if not death.started:
                server.until_up()
            time.sleep(death.after_s)
            server.kill()
    server.until_dead()
    server.start()
    server.until_up()


# ---- the training run


def batch(step: int) -> list[tinker.types.Datum]:
    """Now and then so large that the SDK sends it in pieces, the last ones first."""
    if step % 10 == 6:
        return [datum(step * 2000 + number, 2) for number in range(1100)]
    return [datum(step * 2000 + number) for number in range(2)]


class Run:
    """One training run; `seen` is all that came of it."""

    def __init__(self, server: Mortal) -> None:
        self.service = tinker.ServiceClient(base_url=server.url, api_key=server.key)
        self.training = self.service.create_lora_training_client("openrl/tiny", rank=4, seed=1).result(60)
        self.seen: list[Any] = []
        self.saved: list[str] = []

    def step(self, step: int) -> None:
        """Send all of a step before its first answer is there."""
        trained = [self.training.forward_backward(batch(step), "cross_entropy")]
        if step % 2:
            trained.append(self.training.forward_backward([datum(step)], "cross_entropy"))
        stepped = self.training.optim_step(ADAM)
        saved = self.training.save_state(f"step-{step}") if step % 4 == 3 else None
        for one in trained:
            answer = one.result(120)
            self.seen.append((answer.metrics, [out["logprobs"].data for out in answer.loss_fn_outputs]))
        self.seen.append(stepped.result(120).metrics)
        if saved is not None:
            self.saved.append(saved.result(120).path)
        if step % 3 == 2:
            self.sample(step)

    def sample(self, step: int) -> None:
        sampling = self.training.save_weights_and_get_sampling_client().result(120)
        with ThreadPoolExecutor() as threads:
            self.seen += threads.map(lambda seed: draw(sampling, seed), (step, step + 1000))

    def end(self) -> None:
        self.saved.append(self.training.save_state("last").result(120).path)
        self.service.close("success")


def train_and_kill(folder: Path, deaths: Sequence[Death]) -> int:
    """How many steps there were."""
    with mortal(folder / "killed", CONFIG) as killed, ThreadPoolExecutor() as threads:
        run = Run(killed)
        run.step(0)
        dying = threads.submit(die_and_rise, killed, deaths)
        step = 1
        while not dying.done():
            run.step(step)
            step += 1
        dying.result()
        run.end()
        with mortal(folder / "spared", CONFIG) as spared:
            other = Run(spared)
            for number in range(step):
                other.step(number)
            other.end()
            assert run.seen == other.seen
            assert len(run.saved) == len(other.saved)
            for mine, its in zip(run.saved, other.saved, strict=True):
                assert_same(tensors(killed, mine), tensors(spared, its))
    return step


def test_a_server_killed_at_the_worst_moments_trains_to_the_same_bits(tmp_path: Path) -> None:
    train_and_kill(tmp_path, A_FEW)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(2))
def test_the_same_holds_for_fifty_deaths_of_all_kinds(tmp_path: Path, seed: int) -> None:
    train_and_kill(tmp_path, drawn(50, random.Random(seed)))
