"""What belongs to the hosted product only: refused at once, with a word on what to do."""

from __future__ import annotations

from fastapi import APIRouter, Response

from openrl.errors import Unknown
from openrl.routes.call import API, Caller
from openrl.wire.refusal import Malformed

router = APIRouter(prefix=API)


@router.post("/create_custom_loss")
async def create_custom_loss(call: Caller) -> Response:
    raise Malformed("this server runs no losses of clients: forward_backward_custom computes them in the client")


@router.get("/audit")
@router.get("/billing/usage/events")
@router.get("/billing/usage/checkpoints/current")
async def hosted(call: Caller) -> Response:
    raise Unknown("this server keeps no audit log and sends no bills: that is the hosted product's")
