"""Named tensors that are views of one flat vector, so that a step, a copy or a comparison of all is one operation.

Knows neither models nor files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor


class Parameters:
    """Tensors by name, in the order given; `flat` holds their values, one after the other."""

    def __init__(self, shapes: Mapping[str, torch.Size]) -> None:
        self.shapes = dict(shapes)
        self.flat = torch.zeros(sum(shape.numel() for shape in self.shapes.values()))
        self.named = self.views(self.flat)

    def views(self, flat: Tensor) -> dict[str, Tensor]:
        """The same names over another vector of the same size."""
        pieces = torch.split(flat, [shape.numel() for shape in self.shapes.values()])
        return {name: piece.view(shape) for (name, shape), piece in zip(self.shapes.items(), pieces, strict=True)}

    def collect_gradients(self, into: Tensor) -> None:
        """From now on backward passes add to `into`, a vector of the same size."""
        for tensor, gradient in zip(self.named.values(), self.views(into).values(), strict=True):
            tensor.requires_grad_(True)
            tensor.grad = gradient

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        return iter(self.named.items())

    @property
    def size_bytes(self) -> int:
        return self.flat.numel() * self.flat.element_size()
