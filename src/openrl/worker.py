"""The worker port: who carries out work on models, and what the service relies on.

Every method is called on one and the same thread, one at a time, and may block. Rules:

1. What cannot be done because of what the user asked for raises `RequestError("...", "user")`. Any other exception is
   answered as the server's fault. After either, weights, optimizer and accumulated gradients are as they were before.
2. The same calls from the same state give the same state, to the bit. The service relies on it: after a crash it loads
   the last durable state and runs again what came after it. Work with `forward_only`, and saves, change nothing.
3. A folder that is written appears whole or not at all, also if the process is killed. It does not exist before.
4. `WorkerDied` says that everything in memory is lost: the service goes on with `create`, `load`, `load_durable`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from openrl.errors import RequestError
from openrl.work import ModelSpec, Result, Sample, SampleResult, Work


class Base(Struct, frozen=True):
    """A base model that can be trained and sampled."""

    name: str
    max_context_length: int
    vocab_size: int
    tokenizer_id: str | None = None
    arch: str | None = None


class Worker(Protocol):
    """Carries out work; holds models in memory between calls. Which call comes next is not its business."""

    def bases(self) -> Sequence[Base]:
        """The base models that `create` and `sample` take, aliases included."""
        ...

    def check(self, spec: ModelSpec) -> None:
        """Raise `RequestError` for an unknown base, a rank out of bounds, or an adapter that covers no layer."""
        ...

    def create(self, model_id: str, spec: ModelSpec) -> None:
        """Make a model. One of this id that is in memory is replaced."""
        ...

    def load(self, model_id: str, spec: ModelSpec, folder: str, optimizer: bool) -> None:
        """Make a model from a checkpoint that `SaveState` wrote, with its optimizer where asked for."""
        ...

    def run(self, model_id: str, work: Work) -> Result | None:
        """Carry the work out on a model in memory. None is the answer to `LoadState`."""
        ...

    def save_durable(self, model_id: str, folder: str) -> None:
        """Write all that the model is: weights, optimizer, accumulated gradients, counters, random state."""
        ...

    def load_durable(self, model_id: str, spec: ModelSpec, folder: str) -> None:
        """Bring back what `save_durable` wrote, to the bit. Any exception means that it cannot be read."""
        ...

    def drop(self, model_id: str) -> None:
        """Free the model's memory; one that is not there is no error."""
        ...

    def sample(self, batch: Sequence[Sample]) -> Sequence[SampleResult | RequestError]:
        """Draw for each request, of one base and one snapshot, an answer that does not depend on the others."""
        ...
