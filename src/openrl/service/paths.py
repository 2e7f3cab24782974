"""The names of checkpoints: `tinker://<model_id>/<weights|sampler_weights|external_weights>/<name>`."""

from __future__ import annotations

import re

from openrl.errors import RequestError
from openrl.store import CheckpointKind

_SCHEME = "tinker://"
_PARTS: dict[CheckpointKind, str] = {
    "training": "weights",
    "sampler": "sampler_weights",
    "external": "external_weights",
}
_NAME = re.compile(r"[A-Za-z0-9._=+@-]{1,200}")


def path_of(model_id: str, kind: CheckpointKind, name: str) -> str:
    """The path under which a checkpoint is published; a name must not lead anywhere."""
    if not _NAME.fullmatch(name) or set(name) == {"."}:
        raise RequestError(
            f"checkpoint name {name!r} cannot be: up to 200 letters, digits and . _ - = + @ are right, and no slashes"
        )
    return f"{_SCHEME}{model_id}/{_PARTS[kind]}/{name}"


def check_path(path: str) -> str:
    """The same path, if it is one."""
    parts = path.removeprefix(_SCHEME).split("/")
    if not path.startswith(_SCHEME) or len(parts) != 3 or parts[1] not in _PARTS.values() or not all(parts):
        raise RequestError(f"{path!r} is no checkpoint: {_SCHEME}<model id>/<weights|sampler_weights>/<name> is right")
    return path
