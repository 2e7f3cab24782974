"""Whether anything has changed since somebody last looked: one number that grows, and waiting for it to.

Whoever waits is told that there is something new, never what: so nothing is kept for those who read slowly.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tsched.journal import Record


class Changes:
    """Reads decisions. What changes without one, `besides`, is looked at while somebody waits.

    Args:
        every_s: how often that is.
    """

    def __init__(self, besides: Callable[[], object] = lambda: None, *, every_s: float = 1.0) -> None:
        self.count = 0
        self._besides, self._every_s = besides, every_s
        self._seen = besides()
        self._news = asyncio.Event()

    def take(self, record: Record) -> None:
        self._tell()

    def missed(self) -> None:
        self._tell()

    async def after(self, count: int) -> int:
        """Wait until there is more than was seen at `count`; answers the count then."""
        while self.count <= count:
            try:
                async with asyncio.timeout(self._every_s):
                    await self._news.wait()
            except TimeoutError:
                self._look()
        return self.count

    def _look(self) -> None:
        seen = self._besides()
        if seen != self._seen:
            self._seen = seen
            self._tell()

    def _tell(self) -> None:
        self.count += 1
        self._news.set()
        self._news = asyncio.Event()
