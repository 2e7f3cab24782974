"""External weights: addresses for their files that hold for a while, and the files at them."""

from __future__ import annotations

import time
from pathlib import Path
from urllib.parse import quote

from fastapi import APIRouter, Request, Response
from fastapi.responses import FileResponse

from openrl import access
from openrl.errors import Unknown
from openrl.routes import stored
from openrl.routes.call import API, Caller, Gateway, answer
from openrl.wire.checkpoints import ExternalUrls
from openrl.wire.refusal import Malformed

router = APIRouter(prefix=API)


@router.get("/training_runs/{run_id}/checkpoints/external_weights/{name}/external_weights_urls")
async def addresses(call: Caller, run_id: str, name: str) -> Response:
    """One for every file of the checkpoint; each needs no key."""
    path = stored.path(run_id, "external_weights", name)
    checkpoint = await call.service.checkpoints.get(call.owner, path)
    expires_s = int(time.time() + call.gateway.config.grace.url_s)
    root = str(call.request.base_url).rstrip("/") + f"{API}/external_weights"
    urls = {}
    for file in files(Path(checkpoint.folder)):
        signature = access.sign(call.gateway.signing_key, path, file, expires_s)
        owner = quote(call.owner, safe="")
        urls[file] = f"{root}/{owner}/{quote(run_id)}/{quote(name)}/{expires_s}/{signature}/{quote(file)}"
    return answer(ExternalUrls(urls=urls, expires=stored.moment(expires_s * 1_000_000)))


@router.get("/training_runs/{run_id}/checkpoints/{kind}/{name}/external_weights_urls")
async def only_external(call: Caller, run_id: str, kind: str, name: str) -> Response:
    raise Malformed(f"{kind}/{name} cannot be downloaded: save_weights_external writes what can be")


@router.get("/external_weights/{owner}/{run_id}/{name}/{expires_s}/{signature}/{file:path}")
async def download(
    request: Request, owner: str, run_id: str, name: str, expires_s: int, signature: str, file: str
) -> Response:
    """The signature says that a key which may read the checkpoint has asked for this file."""
    gateway: Gateway = request.app.state.gateway
    path = stored.path(run_id, "external_weights", name)
    access.check_signature(gateway.signing_key, path, file, expires_s, signature, time.time())
    checkpoint = await gateway.service.checkpoints.get(owner, path)
    folder = Path(checkpoint.folder)
    if file not in files(folder):
        raise Unknown(f"{path} has no file {file!r}")
    return FileResponse(folder / file)


def files(folder: Path) -> list[str]:
    """Paths of the files below the folder."""
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())
