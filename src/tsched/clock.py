"""Engine time: the event loop's clock in whole microseconds, continued from where a log ended.

Engine time never goes back and does not run while nobody schedules: what was to end in a minute when the process died
ends a minute after it started again.
"""

from __future__ import annotations

import anyio


class Clock:
    """Counts from `start_us` on; made inside a running event loop."""

    __slots__ = ("_offset_us",)

    def __init__(self, start_us: int = 0) -> None:
        self._offset_us = start_us - round(anyio.current_time() * 1_000_000)

    def now_us(self) -> int:
        return round(anyio.current_time() * 1_000_000) + self._offset_us

    def loop_time(self, when_us: int) -> float:
        """The event loop's time, in seconds, at which it will be `when_us`."""
        return (when_us - self._offset_us) / 1_000_000
