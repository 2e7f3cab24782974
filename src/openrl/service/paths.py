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
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+=@:-]{0,127}")


def path_of(model_id: str, kind: CheckpointKind, name: str) -> str:
    """The path under which a checkpoint is published."""
    return f"{_SCHEME}{model_id}/{_PARTS[kind]}/{check_name(name)}"


def check_name(name: str) -> str:
    """The same name, if it could be that of a folder and leads nowhere else."""
    if _NAME.fullmatch(name) is None or ".." in name:
        raise RequestError(
            f"the name {name[:160]!r} will not do: give 1 to 128 letters and digits, "
            "after the first also _ - . + = @ :, no slash and no '..'"
        )
    return name


def check_path(path: str) -> str:
    """The same path, if it is one."""
    parts = path.removeprefix(_SCHEME).split("/")
    if not path.startswith(_SCHEME) or len(parts) != 3 or parts[1] not in _PARTS.values() or not all(parts):
        raise RequestError(f"{path!r} is no checkpoint: {_SCHEME}<model id>/<weights|sampler_weights>/<name> is right")
    return path
