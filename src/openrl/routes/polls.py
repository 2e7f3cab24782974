"""Requests that are held until there is a result. When the server ends they are let go at once."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from openrl.service import Pending

T = TypeVar("T")

ENDING = Pending("active", "the server is going down; what was asked of it goes on when it is back")


class Polls:
    """The polls that are held now."""

    def __init__(self) -> None:
        self._held: set[asyncio.Task[Any]] = set()
        self._ending = False

    async def hold(self, poll: Coroutine[Any, Any, T]) -> T | Pending:
        """What the poll brings, or that there is nothing yet if the server ends first."""
        task = asyncio.ensure_future(poll)
        self._held.add(task)
        task.add_done_callback(self._held.discard)
        if self._ending:
            task.cancel()
        try:
            return await task
        except asyncio.CancelledError:
            if not self._ending:
                task.cancel()
                raise
            return ENDING

    def end(self) -> None:
        """Let all go, and those that come."""
        self._ending = True
        for task in self._held:
            task.cancel()
