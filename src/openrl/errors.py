"""Every error that openrl raises, one class a kind, under one root.

A `RequestError` is an answer to a client: its category says whose fault it is, and its text names the thing, the state
that it was in, and what to do. The others are for who runs the service. All of them survive pickling.
"""

from __future__ import annotations

from typing import Literal

Category = Literal["user", "server"]


class OpenRLError(Exception):
    """Root of all errors of this package."""


class RequestError(OpenRLError):
    """A request cannot be carried out; what it would have changed is as it was before."""

    def __init__(self, text: str, category: Category = "user") -> None:
        super().__init__(text, category)
        self.text = text
        self.category = category

    def __str__(self) -> str:
        return self.text


class Unknown(RequestError, LookupError):
    """An id names nothing that its sender may see: it was never given out, was deleted, or is somebody else's."""


class Overloaded(RequestError):
    """More waits than may wait: send the same request again later."""

    def __init__(self, text: str, category: Category = "server") -> None:
        super().__init__(text, category)


class WorkerDied(OpenRLError, RuntimeError):
    """The worker is gone, and with it every model that it held in memory."""


class StateUnreadable(OpenRLError, RuntimeError):
    """A model's durable state cannot be read, so that the model cannot be brought back."""


class StoreError(OpenRLError, RuntimeError):
    """The store cannot be read or written just now; what it holds is as it was."""


class StoreInvalid(OpenRLError, ValueError):
    """The file is no store that this version can read; the text says what is wrong with it."""
