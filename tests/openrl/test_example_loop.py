"""The loop that the README shows is the one in examples/, and it learns against a live server."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.openrl.live_server import Live, environment

pytestmark = pytest.mark.timeout(300)

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "openrl_loop.py"


def test_the_readme_shows_the_example() -> None:
    shown = re.search(r"```python\n(import tinker\n.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert shown is not None
    assert EXAMPLE.read_text().endswith(shown[1])


def test_the_example_learns_what_it_is_shown(live: Live) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLE)],
        env=environment(TINKER_BASE_URL=live.url, TINKER_API_KEY=live.key),
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    losses = [float(value) for value in re.findall(r"^step \d+: loss (\S+)$", done.stdout, re.MULTILINE)]
    assert len(losses) == 20
    assert losses[-1] < losses[0] / 10
    assert "\n It is five.\n" in done.stdout
    assert re.search(r"^saved as tinker://\S+/weights/first$", done.stdout, re.MULTILINE)
