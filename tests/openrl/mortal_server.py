"""`openrl serve`, killed at chosen places and started again on its port, faster than it can import torch.

Run as a program, this imports what the server needs and then, for every line it is given, becomes the server in a child
of its own, which ends itself with SIGKILL at the place that the line names: the moment before or after the nth call of
a function. From outside it is killed like any process. `Mortal` is what a test holds.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from tests.openrl.live_server import environment

ROOT = Path(__file__).resolve().parents[2]
WAIT_S = 90.0


class Place(Struct, frozen=True):
    """Where a server dies: at the `nth` call of `function` ("module:attribute"), before it or `after` it."""

    function: str
    after: bool = False
    nth: int = 1


# ---- the server's side


def become_servers() -> None:
    """A server for every line of stdin, one after the other."""
    # What takes long to import is there before a child is made.
    from openrl import app, torch_worker  # noqa: F401
    from openrl.cli import main, serve, server  # noqa: F401

    for line in sys.stdin:
        arguments, place = json.loads(line)
        if (child := os.fork()) == 0:
            if place is not None:
                undermine(Place(**place))
            main(["serve", *arguments])
        print("pid", child, flush=True)
        print("ended", os.waitpid(child, 0)[1], flush=True)


def undermine(place: Place) -> None:
    """Put the end of this process at the place."""
    module, _, attribute = place.function.partition(":")
    *path, name = attribute.split(".")
    holder = functools.reduce(getattr, path, import_module(module))
    setattr(holder, name, deadly(getattr(holder, name), place))


def deadly(function: Callable[..., Any], place: Place) -> Callable[..., Any]:
    calls = 0

    def called(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == place.nth and not place.after:
            os.kill(os.getpid(), signal.SIGKILL)
        found = function(*args, **kwargs)
        if calls == place.nth:
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    return called


# ---- the test's side


class Mortal:
    """A server that always has the same port and folder."""

    def __init__(self, folder: Path, config: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "openrl.toml").write_text(config)
        self.folder = folder
        self.data = folder / "data"
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.key = ""
        self.pid = 0
        self._changed = threading.Condition()
        self._is_up = self._is_dead = False
        with open(folder / "server.log", "a", encoding="utf-8") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", f"import {__name__} as m; m.become_servers()"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=ROOT,
                env=environment(),
            )
        threading.Thread(target=self._listen, daemon=True).start()

    def start(self, place: Place | None = None) -> None:
        """Begin to start it."""
        assert self._process.stdin is not None
        arguments = ["--port", str(self.port), "--config", str(self.folder / "openrl.toml"), "--data", str(self.data)]
        with self._changed:
            self._is_up = self._is_dead = False
        self._process.stdin.write(json.dumps([arguments, place and msgspec.structs.asdict(place)]) + "\n")
        self._process.stdin.flush()

    def until_up(self) -> None:
        """Until it can be called, or is dead."""
        self._until(lambda: self._is_up or self._is_dead)

    def until_dead(self) -> None:
        self._until(lambda: self._is_dead)

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def restart(self) -> None:
        """Kill it, and have it back."""
        self.kill()
        self.until_dead()
        self.start()
        self.until_up()

    def close(self) -> None:
        self.kill()
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)

    def rss_bytes(self) -> int:
        """What the server has in memory now."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def _until(self, holds: Callable[[], bool]) -> None:
        with self._changed:
            if not self._changed.wait_for(holds, WAIT_S):
                raise AssertionError((self.folder / "server.log").read_text()[-5000:])

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._changed:
                self._heard(line.strip())
                self._changed.notify_all()

    def _heard(self, line: str) -> None:
        first, _, rest = line.partition(" ")
        if first == "pid":
            self.pid = int(rest)
        elif first == "ended":
            self._is_dead = True
        elif rest.startswith("TINKER_API_KEY=") and not self.key:
            self.key = rest.removeprefix("TINKER_API_KEY=").split()[0]
        self._is_up = self._is_up or "TINKER_API_KEY=" in rest


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@contextmanager
def mortal(folder: Path, config: str = "") -> Iterator[Mortal]:
    """A server that is up, until the end of the block."""
    server = Mortal(folder, config)
    try:
        server.start()
        server.until_up()
        yield server
    finally:
        server.close()
