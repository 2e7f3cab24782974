"""What all tests share: how hard Hypothesis searches, and where the recorded runs are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent.parent

# "ci" draws the same examples in every run, so that a red test is the change's own fault; "nightly" draws new ones.
_SLOW_MACHINES = (HealthCheck.too_slow,)
settings.register_profile(
    "ci",
    max_examples=100,
    stateful_step_count=50,
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=_SLOW_MACHINES,
)
settings.register_profile(
    "nightly",
    max_examples=2_000,
    stateful_step_count=50,
    deadline=None,
    print_blob=True,
    suppress_health_check=_SLOW_MACHINES,
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of recorded runs, which is no part of this repository: TSCHED_SHARED, else ../shared."""
    place = Path(os.environ.get("TSCHED_SHARED", ROOT.parent / "shared"))
    if not place.is_dir():
        pytest.skip(f"recorded runs are not here: no folder {place}; set TSCHED_SHARED to where they are")
    return place
