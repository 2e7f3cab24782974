"""The snapshots that are sampled, held in memory: those used last, up to a number of bytes.

A snapshot's folder never changes, so what was read once stays true.
"""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

from openrl import checkpoints
from openrl.models import Bases
from openrl.weights import Weights, of_base, of_spec
from openrl.work import ModelSpec


class Snapshots:
    """Weights by folder.

    Args:
        bases: Where the base of a snapshot comes from.
        max_bytes: What all weights held may take. The one asked for is held even where it is larger.
    """

    def __init__(self, bases: Bases, max_bytes: int) -> None:
        self._bases = bases
        self._max_bytes = max_bytes
        self._held: OrderedDict[tuple[str, str], Weights] = OrderedDict()

    def get(self, base_model: str, folder: str) -> Weights:
        """The weights in a folder, of this base; with no folder the base's own."""
        base = self._bases.get(base_model)
        if not folder:
            return of_base(base)
        key = (base.name, folder)
        if key not in self._held:
            self._held[key] = self._read(base_model, Path(folder))
        self._held.move_to_end(key)
        self._make_room()
        return self._held[key]

    def hold(self, weights: Weights, spec: ModelSpec, folder: Path) -> None:
        """Keep what was just written to a folder, which spares reading it. Only adapters: they are small."""
        if spec.rank is not None:
            copied = of_spec(weights.base, spec, initialise=False)
            copied.parameters.flat.copy_(weights.parameters.flat)
            self._held[weights.base.name, str(folder)] = copied
            self._make_room()

    def _read(self, base_model: str, folder: Path) -> Weights:
        base = self._bases.get(base_model)
        spec = checkpoints.read_spec(folder, base.name)
        read = of_spec(base, spec, initialise=False)
        checkpoints.load_weights(read, spec, folder)
        return read

    def _make_room(self) -> None:
        while len(self._held) > 1 and sum(one.parameters.size_bytes for one in self._held.values()) > self._max_bytes:
            self._held.popitem(last=False)
