"""The key-value cache of sequences that are being decoded: a fixed number of slots, which sequences take in turn."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from openrl.attention import CHUNK
from openrl.network import Network
from openrl.sampler.blocks import ROWS

KeyValues = list[tuple[Tensor, Tensor]]  # a layer each, (heads, positions, width)


class Slots:
    """Cached keys and values of every slot, layer and position, in chunks. A free slot computes on padding."""

    def __init__(self, network: Network) -> None:
        self.free = list(range(ROWS))
        self._network = network
        self._layers: list[list[Tensor]] = []  # keys and values, (chunks, slots, heads, CHUNK, width)
        self._filled = torch.zeros(ROWS, dtype=torch.long)
        self._taken = torch.zeros(ROWS, dtype=torch.long)
        self._slots = torch.arange(ROWS)
        self._attended = 0

    def take(self, prompt: KeyValues, length: int) -> int:
        """Give a slot to a sequence whose first `length` tokens have these keys and values."""
        slot = self.free.pop(0)
        self._layers = self._layers or [[_room(0, *each.shape[::2]) for each in layer] for layer in prompt]
        self._make_room(length)
        for cached, new in zip(self._layers, prompt, strict=True):
            for to, tensor in zip(cached, new, strict=True):
                chunked = _chunked(tensor[:, :length])
                to[: len(chunked), slot] = chunked
                to[len(chunked) :, slot] = 0.0
        self._filled[slot], self._taken[slot] = length, 1
        return slot

    def release(self, slot: int) -> None:
        """The slot's sequence is complete."""
        self._filled[slot], self._taken[slot] = 0, 0
        self.free.append(slot)

    def step(self, tokens: Sequence[int]) -> Tensor:
        """Run one further token of every slot; its hidden states, (slots, width)."""
        longest = int(self._filled.max()) + 1
        self._make_room(longest)
        self._attended = -(-longest // CHUNK)
        positions = torch.arange(self._attended * CHUNK).view(self._attended, 1, CHUNK)
        mask = (positions <= self._filled[:, None]).view(-1, 1, 1, CHUNK)
        hidden = self._network.hidden(torch.tensor(tokens)[:, None], self._filled[:, None], cache=self, mask=mask)
        self._filled += self._taken
        return hidden[:, 0]

    def update(self, key: Tensor, value: Tensor, layer: int, *args: object, **kwargs: object) -> tuple[Tensor, Tensor]:
        """Called by attention layers within `step`."""
        keys, values = self._layers[layer]
        for cached, new in ((keys, key), (values, value)):
            cached[self._filled // CHUNK, self._slots, :, self._filled % CHUNK] = new[:, :, 0]
        return keys[: self._attended], values[: self._attended]

    def _make_room(self, positions: int) -> None:
        for tensors in self._layers:
            had = len(tensors[0])
            missing = -(-positions // CHUNK) - had
            if missing > 0:
                more = max(missing, had)
                tensors[:] = [torch.cat([held, _room(more, held.shape[2], held.shape[4])]) for held in tensors]


def _room(chunks: int, heads: int, width: int) -> Tensor:
    return torch.zeros(chunks, ROWS, heads, CHUNK, width)


def _chunked(tensor: Tensor) -> Tensor:
    """(heads, positions, width) as (chunks, heads, CHUNK, width), with zeros at the end."""
    padded = F.pad(tensor, (0, 0, 0, -tensor.shape[1] % CHUNK))
    return padded.view(tensor.shape[0], -1, CHUNK, tensor.shape[2]).transpose(0, 1)
