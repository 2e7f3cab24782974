"""The HTTP application: all routes over one service, which it starts and ends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from openrl.access import Keys, signing_key
from openrl.config import Config
from openrl.metrics import Counts, HttpMetrics
from openrl.routes import checkpoints, clients, downloads, operations, refusals, refused, results, sampling, sessions
from openrl.routes import training as training_routes
from openrl.routes.call import Gateway
from openrl.routes.observed import Observed
from openrl.service import Service

# Routes are tried one after another: those that are asked for most come first.
TOPICS = (results, training_routes, sampling, sessions, clients, checkpoints, downloads, refused)


def create_app(service: Service, keys: Keys, config: Config) -> FastAPI:
    """The application; it starts the service when it starts, and closes it when it ends."""
    app = FastAPI(title="openrl", lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    registry = CollectorRegistry()
    app.state.gateway = Gateway(service, keys, config, signing_key(config.folder))
    app.state.registry = registry
    Counts(lambda: counts(service), lambda: totals(service), registry)
    app.add_middleware(Observed, metrics=HttpMetrics(registry))
    refusals.install(app)
    for topic in TOPICS:
        app.include_router(topic.router)
    app.include_router(operations.router)
    return app


def counts(service: Service) -> dict[str, float]:
    """The service's numbers by name."""
    stats = service.stats()
    values = msgspec.structs.asdict(stats) | {"stalled": bool(stats.stalled)}
    return {name: float(value) for name, value in values.items() if isinstance(value, int | float)}


def totals(service: Service) -> dict[str, int]:
    """Answers by category, and the worker's deaths, since the start."""
    return service.stats().counts


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """The service runs as long as the application does."""
    service: Service = app.state.gateway.service
    await service.start()
    try:
        yield
    finally:
        await service.close()
