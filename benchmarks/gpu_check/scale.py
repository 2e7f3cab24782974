"""How large a check is: where it runs, and what its models and turns come to."""

from __future__ import annotations

from dataclasses import dataclass, replace

GIB = 1 << 30
MIB = 1 << 20

_BYTES_OF_STATE = 6  # for each parameter in bfloat16: itself and two moments
_CONTEXT_BYTES = GIB  # what a process holds on a device beside its tensors, with room


@dataclass(frozen=True, slots=True)
class Scale:
    """Sizes of one run; with the default ones a model has about a thousand million parameters."""

    device: str = "cuda:0"
    layers: int = 16
    hidden: int = 2048
    vocabulary: int = 32_000
    rounds: int = 3
    switches: int = 200
    adapter_rank: int = 16
    turns: int = 3
    spare_bytes: int = GIB  # beside gradients, what a step computes with

    @property
    def parameters(self) -> int:
        """Of a decoder whose key and value heads are a quarter of its heads, and whose embeddings are tied."""
        square = self.hidden * self.hidden
        attention = 2 * square + square // 2
        return self.layers * (attention + 12 * square + 2 * self.hidden) + self.hidden * (self.vocabulary + 1)

    @property
    def state_bytes(self) -> int:
        return _BYTES_OF_STATE * self.parameters

    @property
    def turn_bytes(self) -> int:
        return 2 * self.parameters + self.spare_bytes

    @property
    def room_bytes(self) -> int:
        """What two jobs that take turns have together: enough for one of them."""
        return self.state_bytes + self.turn_bytes + self.state_bytes // 8

    @property
    def ballast_beside_bytes(self) -> int:
        """What the ballast leaves free: the room, and a context for each of the two."""
        return self.room_bytes + 2 * _CONTEXT_BYTES

    def within(self, device_bytes: int, host_bytes: int) -> Scale:
        """As many layers as leave half of the device free, and of the host what four copies need."""
        limit = min(device_bytes // 2, host_bytes // 5)
        layers = self.layers
        while layers > 1 and self.with_layers(layers).state_bytes > limit:
            layers -= 1
        return self.with_layers(layers)

    def with_layers(self, layers: int) -> Scale:
        return replace(self, layers=layers)
