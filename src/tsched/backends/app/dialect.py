"""What a dialect is: how one kind of engine is put to sleep and woken, on one of its endpoints.

A dialect sends what a replica's record says is missing, and keeps that record. A region is asleep once its sleep was
acknowledged, and no longer from the moment its wake is asked for; until that is acknowledged it is unclear, and goes
with the next move, whichever that is. So a move that failed half-way is undone by the opposite one, and what is awake
is never woken again. Engines do not take that: a second wake makes vLLM resume work that its job had paused, and ends
an SGLang scheduler.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from tsched.backends.app.engine import Engine
from tsched.backends.app.http import Http


@dataclass(slots=True, eq=False)
class Replica:
    """One endpoint and what is known of it.

    `whole` says that it can work: from the end of a wake to the beginning of a sleep. `stale` weights must be loaded.
    """

    endpoint: str
    asleep: set[str] = field(default_factory=set)
    unclear: set[str] = field(default_factory=set)
    whole: bool = True
    stale: bool = False

    def to_sleep(self, tags: Iterable[str]) -> list[str]:
        """What of these is not asleep for sure; a sleep begins."""
        self.whole = False
        return [tag for tag in tags if tag not in self.asleep]

    def slept(self, tags: Iterable[str], *, stale: bool) -> None:
        """These are asleep now."""
        self.asleep.update(tags)
        self.unclear.difference_update(tags)
        self.stale = self.stale or stale

    @contextmanager
    def waking(self, tag: str) -> Iterator[bool]:
        """Whether this region has to be woken, which is then done inside."""
        due = tag in self.asleep or tag in self.unclear
        self.asleep.discard(tag)
        self.unclear.update((tag,) if due else ())
        yield due
        self.unclear.discard(tag)


class Dialect(Protocol):
    """One kind of engine; instances have no state."""

    @property
    def mend(self) -> str:
        """How an engine must be started for this to work."""
        ...

    async def ready(self, http: Http, replica: Replica, engine: Engine) -> None:
        """Raise `BackendError` where a sleep would lose what the engine's mode says is kept."""
        ...

    async def sleep(self, http: Http, replica: Replica, engine: Engine) -> None:
        """Abort what is in flight, and put to sleep the regions that are awake."""
        ...

    async def wake(self, http: Http, replica: Replica, engine: Engine) -> None:
        """Wake the weights, load them where they are stale, wake the cache and empty it, unless it is whole."""
        ...

    async def look(self, http: Http, replica: Replica, engine: Engine) -> None:
        """After a sleep of unknown outcome, correct the record by what the engine says, if it can say it."""
        ...
