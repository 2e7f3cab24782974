"""Whether the models of a configuration are where it says. Nothing is loaded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from openrl.config import Config, ModelSource
from openrl.errors import OpenRLError

BUILT_IN = "openrl/tiny"


class Unwell(OpenRLError):
    """A check failed; the text says what to do."""


def found(config: Config, source: ModelSource) -> str:
    """Where the model is. Raises Unwell if it is not there."""
    return complete(source.path) if source.path is not None else known(config, source.alias_of or "")


def faults(config: Config) -> Iterator[str]:
    """What is wrong with the models, one line each."""
    for name, source in config.models.items():
        try:
            found(config, source)
        except Unwell as fault:
            yield f"model {name}: {fault}"


def complete(path: str) -> str:
    """A folder has a configuration and weights; the name of a hub model cannot be checked without the hub."""
    folder = Path(path).expanduser()
    if not folder.is_dir():
        if folder.is_absolute():
            raise Unwell(f"{folder} is not a folder: correct models.path")
        return f"{path}, from the hub"
    missing = [name for name in ("config.json", "tokenizer_config.json") if not (folder / name).is_file()]
    if missing or not any(folder.glob("*.safetensors")):
        raise Unwell(f"{folder} lacks {', '.join(missing) or 'weights (*.safetensors)'}: save the model there again")
    return str(folder)


def known(config: Config, target: str) -> str:
    """An alias stands for a model, not for another alias."""
    if target != BUILT_IN and (target not in config.models or config.models[target].path is None):
        raise Unwell(f"alias of {target!r}, which is no model of this configuration: correct models.alias_of")
    return f"alias of {target}"
