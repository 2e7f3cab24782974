"""The HTTP server: uvicorn, which ends cleanly and says when it can be used."""

from __future__ import annotations

import asyncio
import errno
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI

from openrl.errors import OpenRLError

KEEP_ALIVE_S = 75  # longer than clients keep idle connections, so that no request meets one that is just closing
GRACE_S = 10


class Server(uvicorn.Server):
    """Serves the application until SIGTERM or SIGINT; held polls are let go then.

    Args:
        announce: called once requests are taken.
    """

    def __init__(self, app: FastAPI, announce: Callable[[], None]) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                lifespan="on",
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=GRACE_S,
                backlog=4096,
            )
        )
        self.app = app
        self.announce = announce
        self.interrupted = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self.announce()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take both signals as a request to end; a second one does not wait for what is open."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.end, number)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    def end(self, number: signal.Signals) -> None:
        """Finish what is open, and stop."""
        self.app.state.gateway.polls.end()
        self.force_exit = self.should_exit
        self.should_exit = True
        self.interrupted = self.interrupted or number == signal.SIGINT


class AddressTaken(OpenRLError, OSError):
    """Another program listens there."""


def listening(host: str, port: int) -> socket.socket:
    """A socket at the address; port 0 takes a free one. Raises AddressTaken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=4096)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        raise AddressTaken(f"{host}:{port} is in use: stop what listens there, or give another --port") from error


def address(host: str, taken: socket.socket) -> str:
    """The URL that the socket answers at."""
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{taken.getsockname()[1]}"
