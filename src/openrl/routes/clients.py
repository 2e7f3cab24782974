"""What a client asks about the server and about itself."""

from __future__ import annotations

import time

from fastapi import APIRouter, Response

from openrl.routes.call import API, Caller, answer, nothing
from openrl.wire import client

router = APIRouter(prefix=API)


@router.post("/client/config")
async def config(call: Caller) -> Response:
    """The first request of every client since 0.19: a wrong key is noticed here."""
    return answer(client.ClientConfig())


@router.post("/client/dynamic_config")
async def dynamic_config(call: Caller) -> Response:
    return answer(client.DynamicConfig())


@router.get("/healthz")
async def healthz() -> Response:
    """Whether the process answers; /readyz says whether work gets done."""
    return answer(client.Health())


@router.get("/get_server_capabilities")
async def capabilities(call: Caller) -> Response:
    """The base models of this server."""
    bases = call.service.bases()
    models = [client.SupportedModel(model_name=base.name, max_context_length=base.max_context_length) for base in bases]
    return answer(client.ServerCapabilities(supported_models=models))


@router.get("/auth/apikey/me")
async def key_info(call: Caller) -> Response:
    """What is known of the key that was sent."""
    details = client.KeyDetails(
        org_details=client.KeyOrganisation(name="openrl"), user_details=client.KeyUser(email=call.owner)
    )
    return answer(client.KeyInfo(key_id=int(call.key.key_id), name=call.key.name, note="", details=details))


@router.delete("/auth/apikey/me")
async def revoke_key(call: Caller) -> Response:
    """The key that was sent is good for nothing from now on."""
    call.gateway.keys.revoke(call.key.key_id, time.time_ns() // 1000)
    return nothing()
