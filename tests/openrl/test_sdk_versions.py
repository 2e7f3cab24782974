"""Versions of the SDK from 0.9 on train, sample, save and resume against one server."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.openrl.live_server import Live, environment

pytestmark = pytest.mark.timeout(300)

SCRIPT = Path(__file__).with_name("any_sdk_version.py")
NIGHTLY = ["0.16.1", "0.19.0", "0.24.1", "0.28.1", "0.32.0", "0.36.0"]


@pytest.mark.parametrize("version", ["0.9.0", *(pytest.param(one, marks=pytest.mark.nightly) for one in NIGHTLY)])
def test_a_version_trains_samples_saves_and_resumes(live: Live, tmp_path: Path, version: str) -> None:
    """Only the SDK itself is installed beside; what it needs is here already."""
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(tmp_path)]
    installed = subprocess.run([*install, f"tinker=={version}"], capture_output=True, text=True)
    if installed.returncode != 0:
        pytest.skip(f"tinker {version} cannot be installed: {installed.stderr.strip()[-200:]}")
    settings = {"TINKER_BASE_URL": live.url, "TINKER_API_KEY": live.key, "TINKER_TELEMETRY": "0"}
    run = subprocess.run(
        [sys.executable, str(SCRIPT)],
        capture_output=True,
        text=True,
        timeout=200,
        env=environment(**settings) | {"PYTHONPATH": str(tmp_path)},
    )
    assert run.returncode == 0, run.stderr
    told = json.loads(run.stdout)
    assert told["version"] == version
    assert told["losses"][-1] < told["losses"][0]
    assert told["resumed_alike"]
    assert told["sampled"] == [8, 8]
