"""`openrl serve` as a process of its own, on a free port of this machine."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

SOURCE = Path(__file__).resolve().parents[2] / "src"


class Live(Struct):
    """A server that answers."""

    url: str
    key: str
    folder: Path
    process: subprocess.Popen[str]


def environment(**more: str) -> dict[str, str]:
    """What subprocesses get: this checkout, no hub, and no settings of whoever runs the tests."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OPENRL_", "TINKER_"))}
    return {**kept, "PYTHONPATH": str(SOURCE), "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", **more}


@contextmanager
def running(folder: Path, *arguments: str, config: str = "") -> Iterator[Live]:
    """A server until the end of the block; its log is `server.log` in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "openrl.toml"
    file.write_text(config)
    command = [sys.executable, "-m", "openrl.cli", "serve", "--port", "0", "--config", str(file)]
    with open(folder / "server.log", "a", encoding="utf-8") as log:
        process = subprocess.Popen(
            [*command, "--data", str(folder / "data"), *arguments],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=environment(),
        )
    try:
        yield announced(folder, process)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        finally:
            process.kill()
            process.communicate()


def announced(folder: Path, process: subprocess.Popen[str]) -> Live:
    """Where the server says that it is."""
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(3)]
    url = re.fullmatch(r"export TINKER_BASE_URL=(\S+)\n", lines[1])
    key = re.fullmatch(r"export TINKER_API_KEY=(\S+).*\n", lines[2])
    if url is None or key is None:
        raise AssertionError((folder / "server.log").read_text())
    return Live(url[1], key[1], folder, process)
