"""The HTTP port: `/metrics` for Prometheus, `/healthz` (the process answers) and `/readyz` (it can give turns).

Served by uvicorn in the server's own event loop. Nothing here changes anything, and nobody needs to say who they are.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

from tsched.errors import Invalid, MissingExtra
from tsched.rpc.address import Address

try:
    import uvicorn
    from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
except ImportError as missing:
    raise MissingExtra("the HTTP port needs uvicorn and prometheus-client: pip install 'tsched[serve]'") from missing

STOP_S = 1
PLAIN = "text/plain; charset=utf-8"
# Scrapers are few; whoever opens more connections is told that the port is busy.
CONNECTIONS = 64

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Unready = Callable[[], list[str]]


class App:
    """The three pages, as an ASGI application.

    Args:
        unready: why no turns can be given now, a line each.
    """

    def __init__(self, registry: CollectorRegistry, unready: Unready) -> None:
        self._registry, self._unready = registry, unready

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        status, kind, body = self._page(scope["method"], scope["path"])
        headers = [(b"content-type", kind.encode()), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    def _page(self, method: str, path: str) -> tuple[int, str, bytes]:
        if method not in ("GET", "HEAD"):
            return 405, PLAIN, b"GET is right\n"
        match path:
            case "/metrics":
                return 200, CONTENT_TYPE_LATEST, generate_latest(self._registry)
            case "/healthz":
                return 200, PLAIN, b"ok\n"
            case "/readyz":
                reasons = self._unready()
                return (503 if reasons else 200), PLAIN, ("\n".join(reasons or ["ready"]) + "\n").encode()
            case _:
                return 404, PLAIN, b"there are: /metrics, /healthz, /readyz\n"


class _Server(uvicorn.Server):
    """Leaves signals to whoever runs it."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def http(address: Address, app: App) -> AsyncIterator[str]:
    """Serve until the body ends; yields host and port, with the one that was chosen for 0.

    Raises:
        Invalid: the address cannot be served.
    """
    taken = _listening(address)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
        limit_concurrency=CONNECTIONS,
        timeout_graceful_shutdown=STOP_S,
    )
    server = _Server(config)
    task = asyncio.ensure_future(server.serve(sockets=[taken]))
    try:
        yield str(Address(host=address.host, port=taken.getsockname()[1]))
    finally:
        server.should_exit = True
        with suppress(asyncio.CancelledError):
            await task
        taken.close()


def _listening(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        return socket.create_server((address.host, address.port), family=family, backlog=128)
    except OSError as error:
        raise Invalid(f"server.http {address} cannot be served: {error.strerror or error}") from None
