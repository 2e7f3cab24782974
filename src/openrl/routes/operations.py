"""For who runs the server: whether it lives, whether work gets done, and its numbers. They need no key."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from openrl.routes.call import Gateway

router = APIRouter()


@router.get("/healthz")
async def healthz() -> Response:
    """The process answers."""
    return JSONResponse({"status": "ok"})


@router.get("/readyz")
async def readyz(request: Request) -> Response:
    """The worker has named its models, and the store takes what comes."""
    gateway: Gateway = request.app.state.gateway
    bases = [base.name for base in gateway.service.bases()]
    if gateway.service.stats().stalled:
        return JSONResponse({"detail": "not ready: the store cannot be written; the log says why"}, 503)
    if not bases:
        return JSONResponse({"detail": "not ready: the worker serves no model"}, 503)
    return JSONResponse({"status": "ready", "models": bases})


@router.get("/metrics")
async def metrics(request: Request) -> Response:
    return Response(generate_latest(request.app.state.registry), media_type=CONTENT_TYPE_LATEST)
