"""One live server for all tests that talk to it with the SDK."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator

import pytest

from tests.openrl.live_server import Live, running

# So small that a client can pass it without sending for minutes.
CONFIG = """
threads = 1

[models."Qwen/Qwen3-8B"]
alias_of = "openrl/tiny"

[limits]
rank = 64
num_samples = 64
"""


@pytest.fixture(scope="session")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with running(tmp_path_factory.mktemp("live"), config=CONFIG) as server:
        yield server


@pytest.fixture(scope="module")
def sdk(live: Live) -> Iterator[Live]:
    """The same, for the SDK in this process, which leaves its connections to the garbage collector."""
    yield live
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        for _ in range(3):
            gc.collect()
