"""The SDK leaves its connections to the garbage collector, which would warn of them wherever it next runs."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def connections() -> Iterator[None]:
    """Collect them, without a word, when a module that imports this is done."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        for _ in range(3):
            gc.collect()
