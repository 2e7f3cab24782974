"""A model's state in folders: weights, what an optimizer needs besides, and the form that other libraries read.

Weights lie in one safetensors file, those of an adapter under the names that peft gives them; its header says of what
base and of what kind they are, and loading them into another is refused. A folder appears whole and is never rewritten.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from openrl.errors import RequestError, StateUnreadable
from openrl.folders import publish
from openrl.lora import ATTENTION, MLP, UNEMBEDDING
from openrl.trainer import Trainer
from openrl.weights import Weights
from openrl.work import ModelSpec

ADAPTER, FULL, TRAINING = "adapter_model.safetensors", "model.safetensors", "training.safetensors"
FORMAT = 1


def save_weights(weights: Weights, spec: ModelSpec, folder: Path) -> int:
    """Publish the weights alone, to sample from; the size in bytes."""
    return publish(folder, lambda unfinished: _write_weights(weights, spec, unfinished))


def save_external(weights: Weights, spec: ModelSpec, folder: Path) -> int:
    """Publish what peft, or for all parameters transformers, reads."""

    def write(unfinished: Path) -> None:
        _write_weights(weights, spec, unfinished)
        if spec.rank is not None:
            (unfinished / "adapter_config.json").write_text(json.dumps(_peft_config(weights, spec), indent=2))
        else:
            weights.base.model.config.save_pretrained(unfinished)
            weights.base.tokenizer.save_pretrained(unfinished)

    return publish(folder, write)


def save_state(trainer: Trainer, spec: ModelSpec, folder: Path, gradients: bool) -> int:
    """Publish weights and optimizer, and where wanted the gradients that wait for a step."""

    def write(unfinished: Path) -> None:
        _write_weights(trainer.weights, spec, unfinished)
        tensors = {"first": trainer.optimizer.first, "second": trainer.optimizer.second}
        tensors |= {"gradient": trainer.gradient} if gradients else {}
        save_file(tensors, unfinished / TRAINING, _header({"steps": trainer.optimizer.steps}))

    return publish(folder, write)


def load_weights(weights: Weights, spec: ModelSpec, folder: Path) -> None:
    """Take over the weights of a folder; nothing changes unless all of them fit."""
    flat = _flat(weights, spec, folder)
    with torch.no_grad():
        weights.parameters.flat.copy_(flat)


def load_state(trainer: Trainer, spec: ModelSpec, folder: Path, optimizer: bool) -> None:
    """Take over weights, and optimizer and gradients or else fresh ones; nothing changes unless all of it fits."""
    flat = _flat(trainer.weights, spec, folder)
    size = trainer.gradient.numel()
    fresh = {name: torch.zeros(size) for name in ("first", "second", "gradient")}
    steps = 0
    if optimizer:
        path = folder / TRAINING
        if not path.exists():
            raise RequestError(f"checkpoint {folder.name} has no optimizer state: load it without, or a training state")
        found = _read(path, {}, folder.name)
        fresh |= {name: _fitting(found, name, fresh[name], folder.name) for name in found}
        steps = int(_header_of(path, folder.name)["steps"])
    with torch.no_grad():
        trainer.weights.parameters.flat.copy_(flat)
    trainer.optimizer.first, trainer.optimizer.second = fresh["first"], fresh["second"]
    trainer.optimizer.steps, trainer.gradient = steps, fresh["gradient"]


def read_spec(folder: Path, base_model: str) -> ModelSpec:
    """Of what kind the weights in a folder are, which must be of this base (its own name, not an alias)."""
    path = next((folder / name for name in (ADAPTER, FULL) if (folder / name).exists()), None)
    if path is None:
        raise RequestError(f"checkpoint {folder.name} is gone or holds no weights: save the weights again")
    kind = _header_of(path, folder.name)
    if kind.get("base_model") != base_model:
        raise RequestError(f"checkpoint {folder.name} is of base model {kind.get('base_model')!r}, not {base_model!r}")
    return ModelSpec(**{name: value for name, value in kind.items() if name != "format"})


def _flat(weights: Weights, spec: ModelSpec, folder: Path) -> Tensor:
    flat = torch.empty_like(weights.parameters.flat)
    found = _read(folder / _file(spec), _kind(weights, spec), folder.name)
    for name, view in weights.parameters.views(flat).items():
        view.copy_(_fitting(found, _stored(name, spec), view, folder.name))
    return flat


def _write_weights(weights: Weights, spec: ModelSpec, folder: Path) -> None:
    tensors = {_stored(name, spec): tensor.detach() for name, tensor in weights.parameters}
    save_file(tensors, folder / _file(spec), _header(_kind(weights, spec)))


def _file(spec: ModelSpec) -> str:
    return FULL if spec.rank is None else ADAPTER


def _stored(name: str, spec: ModelSpec) -> str:
    return name if spec.rank is None else f"base_model.model.{name}.weight"


def _kind(weights: Weights, spec: ModelSpec) -> dict[str, Any]:
    kind: dict[str, Any] = {"base_model": weights.base.name, "rank": spec.rank}
    if spec.rank is not None:
        kind |= {"alpha": spec.alpha, "train_attn": spec.train_attn, "train_mlp": spec.train_mlp}
        kind |= {"train_unembed": spec.train_unembed}
    return kind


def _header(values: dict[str, Any]) -> dict[str, str]:
    return {"openrl": json.dumps({"format": FORMAT, **values}, sort_keys=True)}


def _header_of(path: Path, what: str) -> dict[str, Any]:
    try:
        with safe_open(path, "pt") as file:
            values: dict[str, Any] = json.loads((file.metadata() or {})["openrl"])
    except Exception as error:
        raise StateUnreadable(f"checkpoint {what}: {path.name} cannot be read: {error}") from error
    if values.pop("format") != FORMAT:
        raise StateUnreadable(f"checkpoint {what}: {path.name} is of a format that this version does not read")
    return values


def _read(path: Path, kind: dict[str, Any], what: str) -> dict[str, Tensor]:
    if not path.exists():
        raise RequestError(f"checkpoint {what} holds no {path.name}: it is gone, or of a model of another kind")
    found = _header_of(path, what)
    for name, value in kind.items():
        if found.get(name) != value:
            raise RequestError(f"checkpoint {what} is of a model with {name} {found.get(name)!r}, and not {value!r}")
    with safe_open(path, "pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def _fitting(found: dict[str, Tensor], name: str, like: Tensor, what: str) -> Tensor:
    tensor = found.get(name)
    if tensor is None or tensor.shape != like.shape:
        has = "is missing" if tensor is None else f"has the shape {tuple(tensor.shape)}"
        raise StateUnreadable(f"checkpoint {what}: {name} {has}, and the model has {tuple(like.shape)}")
    return tensor


def _peft_config(weights: Weights, spec: ModelSpec) -> dict[str, Any]:
    wanted = ((spec.train_attn, ATTENTION), (spec.train_mlp, MLP), (spec.train_unembed, UNEMBEDDING))
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": weights.base.name,
        "r": spec.rank,
        "lora_alpha": spec.alpha,
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        "target_modules": [name for train, names in wanted if train for name in names],
    }
