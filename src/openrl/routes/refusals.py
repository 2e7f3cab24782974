"""Errors to statuses. Clients send 409, 429 and 5xx again for minutes: those are for what passes by itself."""

from __future__ import annotations

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse

from openrl.access import AccessDenied
from openrl.errors import OpenRLError, Overloaded, RequestError, StoreError, Unknown
from openrl.wire.refusal import TooLarge

log = structlog.get_logger()

# The first class that fits; an error that is not here is a fault of the server's: 500.
STATUSES: tuple[tuple[type[OpenRLError], int], ...] = (
    (TooLarge, 413),
    (Unknown, 404),
    (Overloaded, 429),
    (RequestError, 400),
    (AccessDenied, 401),
    (StoreError, 503),
)


# Its own text, which names the file, is for who runs the server.
NO_STORE = "the server cannot read or write its store just now: send this again, or see the server's log"


def status_of(error: Exception) -> int:
    """The status that makes the client do the right thing."""
    return next((status for kind, status in STATUSES if isinstance(error, kind)), 500)


async def refused(request: Request, error: Exception) -> JSONResponse:
    """Never without a body: a client takes an empty 400 for a broken connection, and tries again."""
    if isinstance(error, StoreError):
        log.error("store_failed", error=str(error))
        return JSONResponse({"detail": NO_STORE}, status_of(error))
    return JSONResponse({"detail": str(error)}, status_of(error))


async def wrong_query(request: Request, error: Exception) -> JSONResponse:
    """A query parameter that is not what it should be."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    return JSONResponse({"detail": f"{where}: {first['msg']}"}, 400)


def install(app: FastAPI) -> None:
    """Every error of this package gets its status."""
    for kind, _ in STATUSES:
        app.add_exception_handler(kind, refused)
    app.add_exception_handler(RequestValidationError, wrong_query)
