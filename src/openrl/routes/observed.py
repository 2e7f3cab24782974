"""Around every request: a name for it, a line in the log, its numbers, and an answer even if the server is at fault."""

from __future__ import annotations

import time
import uuid

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from openrl.metrics import HttpMetrics

log = structlog.get_logger()
QUIET = ("/api/v1/session_heartbeat", "/api/v1/telemetry", "/metrics", "/healthz", "/readyz", "/api/v1/healthz")
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
PENDING = 408
GONE = 499  # for the log: the client left before its request had come in


class Observed:
    """ASGI middleware. What routes bind to structlog's context, such as the future's id, is in the request's line."""

    def __init__(self, app: ASGIApp, metrics: HttpMetrics) -> None:
        self.app = app
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        name = Headers(scope=scope).get("x-request-id", "")[:64] or uuid.uuid4().hex[:16]
        structlog.contextvars.clear_contextvars()
        structlog.contextvars.bind_contextvars(request=name)
        answer = Answer(send, name)
        began = time.perf_counter()
        with self.metrics.open.track_inprogress():
            await self.answered(scope, receive, answer, name)
        self.record(scope, answer.status, time.perf_counter() - began)

    async def answered(self, scope: Scope, receive: Receive, answer: Answer, name: str) -> None:
        """Run the request; an error that nobody foresaw is logged, and answered without its details."""
        try:
            await self.app(scope, receive, answer)
        except ClientDisconnect:
            answer.status = GONE
        except Exception:
            log.exception("request failed", path=scope["path"])
            if answer.status == 0:
                text = f"the server failed at this request; its log says why, under request {name}"
                await JSONResponse({"detail": text}, 500)(scope, receive, answer)

    def record(self, scope: Scope, status: int, seconds: float) -> None:
        """One line and the numbers; what happens all the time is said at level debug."""
        route = getattr(scope.get("route"), "path", "other")
        method = scope["method"] if scope["method"] in METHODS else "other"  # a client may send any word
        self.metrics.observe(route, method, status, seconds)
        say = log.debug if scope["path"] in QUIET or status == PENDING else log.info
        say("request", method=scope["method"], path=scope["path"], status=status, ms=round(seconds * 1e3, 2))


class Answer:
    """`send`, which notes the status and adds the request's name."""

    def __init__(self, send: Send, name: str) -> None:
        self.send = send
        self.name = name
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            MutableHeaders(scope=message)["x-request-id"] = self.name
        await self.send(message)
