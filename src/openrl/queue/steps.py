"""What a worker is told to do, and what then follows: the words between the queue and who drives it. Plain values."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from openrl.errors import Category


class Run(Struct, frozen=True):
    """Carry out unit `seq`; seq 0 makes the model. `silent`: its answer is known already, only its effect is wanted."""

    model_id: str
    seq: int
    request_id: str
    silent: bool = False


class BringBack(Struct, frozen=True):
    """Load the model's durable state, which holds all units up to `seq`."""

    model_id: str
    seq: int


class Persist(Struct, frozen=True):
    """Make the model's state durable; it holds all units up to `seq`."""

    model_id: str
    seq: int


class Drop(Struct, frozen=True):
    """Free the model's memory."""

    model_id: str


class Draw(Struct, frozen=True):
    """Sample for these requests, all from the same weights."""

    request_ids: tuple[str, ...]


Step = Run | BringBack | Persist | Drop | Draw


class Lease(Struct, frozen=True):
    """A step that one worker has; it is acknowledged by number, and taken back if the worker dies."""

    number: int
    worker: str
    step: Step


class Failed(Struct, frozen=True):
    """Why a step, or one request of a draw, came to nothing."""

    error: str
    category: Category = "server"


class Answered(Struct, frozen=True):
    """The request has its one answer: the result that was reported, or with `failed` an error."""

    request_id: str
    failed: Failed | None = None


class Persisted(Struct, frozen=True):
    """The durable state now holds all units up to `seq`: what came before is not needed any more."""

    model_id: str
    seq: int


class Lost(Struct, frozen=True):
    """The model cannot be made or brought back; whatever is asked of it from now on fails."""

    model_id: str
    failed: Failed


Effect = Answered | Persisted | Lost
Status = Literal["waiting", "done", "failed"]
