"""The tensors and generators that a source holds now, with names for those who save them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

import torch

from tsched.backends.region.regions import Source
from tsched.errors import Invalid

State: TypeAlias = torch.Tensor | torch.Generator
_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter, torch.nn.Buffer})


def read(source: Source | None, name: str) -> Iterator[tuple[str, State]]:
    """Everything in this source; a gradient is named after its parameter."""
    match source:
        case None:
            return
        case torch.Tensor():
            yield from _tensor(source, name)
        case torch.nn.Module():
            yield from _module(source, name)
        case torch.optim.Optimizer():
            yield from _optimizer(source, name)
        case torch.Generator():
            yield name, source
        case Mapping():
            for key, part in list(source.items()):
                yield from read(part, f"{name}.{key}")
        case Iterator():
            raise Invalid(f"region {name!r} holds an iterator, which is empty once it was read: make it a list")
        case Iterable():
            for number, part in enumerate(source):
                yield from read(part, f"{name}.{number}")
        case _ if callable(source):
            found = source()
            yield from read(list(found) if isinstance(found, Iterator) else found, name)
        case _:
            raise Invalid(f"region {name!r}: {type(source).__name__} is no module, optimizer, generator or tensor")


def storage_of(name: str, tensor: torch.Tensor) -> torch.UntypedStorage:
    """Raises `Invalid` for a tensor whose memory is not one plain storage."""
    if type(tensor) not in _PLAIN:
        _check_kind(name, tensor)
    if tensor.is_meta:
        raise Invalid(f"tensor {name!r} is on the meta device and holds nothing: load it, or leave it out")
    if tensor.layout is not torch.strided:
        raise Invalid(f"tensor {name!r} is {tensor.layout}: only strided ones lie on one storage; add its parts")
    return tensor.untyped_storage()


def _check_kind(name: str, tensor: torch.Tensor) -> None:
    kind = type(tensor)
    if torch.nn.parameter.is_lazy(tensor):
        raise Invalid(f"tensor {name!r} is not initialized yet: run the module once before its first turn ends")
    if kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        raise Invalid(f"tensor {name!r} is a {kind.__name__}, which holds others: add the tensors inside it instead")


def _module(module: torch.nn.Module, name: str) -> Iterator[tuple[str, State]]:
    for key, parameter in list(module.named_parameters(remove_duplicate=False)):
        yield from _tensor(parameter, f"{name}.{key}")
    for key, buffer in list(module.named_buffers(remove_duplicate=False)):
        yield from _tensor(buffer, f"{name}.{key}")


def _tensor(tensor: torch.Tensor, name: str) -> Iterator[tuple[str, State]]:
    yield name, tensor
    if tensor.is_leaf and tensor.grad is not None:
        yield f"{name}.grad", tensor.grad


def _optimizer(optimizer: torch.optim.Optimizer, name: str) -> Iterator[tuple[str, State]]:
    number = 0
    for place, group in enumerate(optimizer.param_groups):
        yield from _values({key: value for key, value in group.items() if key != "params"}, f"{name}.group{place}")
        for parameter in group["params"]:
            yield from _values(optimizer.state.get(parameter, {}), f"{name}.{number}")
            number += 1


def _values(value: object, name: str) -> Iterator[tuple[str, State]]:
    """Tensors among an optimizer's values, however deep."""
    match value:
        case torch.Tensor():
            yield name, value
        case Mapping():
            for key, part in list(value.items()):
                if isinstance(part, torch.Tensor):
                    yield f"{name}.{key}", part
                else:
                    yield from _values(part, f"{name}.{key}")
        case list() | tuple():
            for number, part in enumerate(value):
                yield from _values(part, f"{name}.{number}")
