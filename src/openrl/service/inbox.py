"""Answers that have just come, and who waits for them. The store has them all; this is what makes a poll quick."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable

from openrl.service.answers import Answered

_RECENT = 128


class Inbox:
    """Keeps the newest answers in memory, and an event for every request that somebody waits for."""

    def __init__(self) -> None:
        self._recent: OrderedDict[str, Answered] = OrderedDict()
        self._waiting: dict[str, tuple[asyncio.Event, int]] = {}
        self.listener: Callable[[str, Answered], None] | None = None  # hears of every answer

    def answered(self, request_id: str, answer: Answered) -> None:
        """The answer is recorded: whoever waits for it is woken."""
        self._recent[request_id] = answer
        if len(self._recent) > _RECENT:
            self._recent.popitem(last=False)
        if request_id in self._waiting:
            self._waiting[request_id][0].set()
        if self.listener is not None:
            self.listener(request_id, answer)

    def recent(self, request_id: str) -> Answered | None:
        return self._recent.get(request_id)

    async def wait(self, request_id: str, wait_s: float) -> None:
        """Return when the answer has come, or the time is over."""
        event, count = self._waiting.get(request_id, (asyncio.Event(), 0))
        self._waiting[request_id] = (event, count + 1)
        try:
            async with asyncio.timeout(wait_s):
                await event.wait()
        except TimeoutError:
            pass
        finally:
            self._leave(request_id)

    def _leave(self, request_id: str) -> None:
        event, count = self._waiting[request_id]
        if count == 1:
            del self._waiting[request_id]
        else:
            self._waiting[request_id] = (event, count - 1)
