"""The weights of a model: an adapter on a shared base, all parameters of a copy of its own, or the base itself."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from openrl.lora import Adapter
from openrl.models import Base
from openrl.network import Network
from openrl.parameters import Parameters
from openrl.work import ModelSpec


class Weights:
    """What is trained, its `parameters`, and the network that computes with them while they are in force."""

    def __init__(self, base: Base, network: Network, parameters: Parameters, adapter: Adapter | None = None) -> None:
        self.base = base
        self.parameters = parameters
        self._network = network
        self._adapter = adapter

    @contextmanager
    def in_force(self) -> Iterator[Network]:
        """The network, which has these weights within."""
        if self._adapter is None:
            yield self._network
        else:
            with self._adapter.in_force():
                yield self._network


def of_base(base: Base) -> Weights:
    """The base as it is, with nothing to train."""
    return Weights(base, base.network, Parameters({}))


def of_spec(base: Base, spec: ModelSpec, initialise: bool = True) -> Weights:
    """What a new model starts with: a fresh adapter (not yet one where others' values will follow), or a copy."""
    if spec.rank is None:
        return _copy(base)
    adapter = Adapter(base.layers, spec)
    if initialise:
        adapter.initialise(spec.seed)
    return Weights(base, base.network, adapter.parameters, adapter)


def _copy(base: Base) -> Weights:
    model = copy.deepcopy(base.model)
    tensors = dict(model.named_parameters())
    parameters = Parameters({name: tensor.shape for name, tensor in tensors.items()})
    with torch.no_grad():
        for name, tensor in tensors.items():
            tensor.data = parameters.named[name].copy_(tensor)
    parameters.named.update(tensors)
    return Weights(base, Network(model), parameters)
