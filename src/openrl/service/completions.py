"""What is done of a sampling session's samples: one poll that tells of all of them, in place of one for each.

A watch begins with a client's first poll, or with one whose cursor this process did not give: it first tells of every
sample that has its answer, from the store, then of each as it gets it. A cursor is the number of the last one told.
While nobody polls nothing is watched, and a watch that is not polled for a while ends.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from msgspec import Struct

from openrl.service.answers import Answered, Failure
from openrl.service.inbox import Inbox
from openrl.store import Request, Store

CLONE = 1_000_000_000  # each client of a session numbers its requests from this times its own number
UNPOLLED_US = 120_000_000


class Completion(Struct, frozen=True):
    """A sample that has its answer."""

    request_id: str
    failed: bool


class Watch:
    """One client's completions that it may not have heard of, each with its number. It knows all since `since`."""

    def __init__(self, since: int) -> None:
        self.since = since
        self.untold: deque[tuple[int, Completion]] = deque()
        self.changed = asyncio.Event()
        self.polled_us = 0

    def add(self, number: int, completion: Completion) -> None:
        self.untold.append((number, completion))
        self.changed.set()

    def forget(self, cursor: int) -> None:
        """What has been heard of; the rest is told again."""
        while self.untold and self.untold[0][0] <= cursor:
            self.untold.popleft()
        if not self.untold:
            self.changed.clear()


class Completions:
    def __init__(self, store: Store, inbox: Inbox, clock: Callable[[], int]) -> None:
        self._store = store
        self._inbox = inbox
        self._clock = clock
        self._number = clock()  # so that an earlier process gave only smaller ones
        self._watches: dict[tuple[str, int], Watch] = {}

    async def poll(self, sampler_id: str, clone: int, cursor: int, wait_s: float) -> tuple[list[Completion], int]:
        """What was answered after `cursor`, as soon as there is something; and the next cursor."""
        watch = self._watches.get((sampler_id, clone))
        if watch is None or not watch.since < cursor <= self._number:
            watch = self._begin(sampler_id, clone)
        else:
            watch.forget(cursor)
        watch.polled_us = self._clock()
        if not watch.untold and wait_s > 0:
            try:
                async with asyncio.timeout(wait_s):
                    await watch.changed.wait()
            except TimeoutError:
                pass
        watch.polled_us = self._clock()
        return [completion for _, completion in watch.untold], self._last(watch)

    def _last(self, watch: Watch) -> int:
        return watch.untold[-1][0] if watch.untold else self._number

    def _begin(self, sampler_id: str, clone: int) -> Watch:
        """A watch that has all that is answered already."""
        watch = self._watches[sampler_id, clone] = Watch(self._number)
        self._number += 1
        for request in self._store.find(Request, sampler_id=sampler_id):
            if request.seq // CLONE == clone and request.state != "waiting":
                self._number += 1
                watch.add(self._number, Completion(request.request_id, request.state == "failed"))
        self._inbox.listener = self._answered
        return watch

    def _answered(self, request_id: str, answer: Answered) -> None:
        """Tell those who watch, and let go of watches that nobody polls."""
        request = self._store.get(Request, request_id)
        if request is not None and request.sampler_id is not None:
            watch = self._watches.get((request.sampler_id, request.seq // CLONE))
            if watch is not None:
                self._number += 1
                watch.add(self._number, Completion(request_id, isinstance(answer, Failure)))
        before_us = self._clock() - UNPOLLED_US
        self._watches = {key: watch for key, watch in self._watches.items() if watch.polled_us >= before_us}
        if not self._watches:
            self._inbox.listener = None
