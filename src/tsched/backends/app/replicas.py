"""All replicas of one engine, put to sleep and woken together: all of them, or none.

Each step goes to every replica at the same time. Where one fails, the others are brought back to where they were, and
the first failure is raised, with what could not be undone. Everything here is bounded: a replica gets at most one move
and one undoing, of a handful of calls each. Memory is not looked at: who asked for the move does that.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio

from tsched.backends.app.dialect import Dialect, Replica
from tsched.backends.app.engine import Engine
from tsched.backends.app.http import Http
from tsched.backends.app.sglang import Sglang
from tsched.backends.app.vllm import Vllm
from tsched.errors import BackendError

Step = Callable[[Http, Replica, Engine], Awaitable[None]]

DIALECTS: dict[str, Dialect] = {"vllm": Vllm(), "sglang": Sglang()}


class Replicas:
    """The replicas of one engine and what is known of them; used by one move at a time."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._dialect = DIALECTS[engine.dialect]
        self._replicas = [Replica(endpoint) for endpoint in engine.endpoints]

    @property
    def asleep(self) -> bool:
        """Whether any replica sleeps, or cannot work for another reason, as far as was acknowledged."""
        return not all(replica.whole for replica in self._replicas)

    @property
    def awake(self) -> bool:
        """Whether any region of any replica is awake."""
        return any(replica.asleep != set(self._engine.tags) for replica in self._replicas)

    def found_asleep(self) -> None:
        """Memory shows that all of them sleep, whoever saw to that."""
        for replica in self._replicas:
            replica.whole = False
            replica.slept(self._engine.tags, stale=self._engine.loses_weights)

    async def sleep(self) -> None:
        """Put to sleep those that are awake; raises `BackendError` after undoing what was done."""
        async with Http(self._engine, self._dialect.mend) as http:
            _raise(await self._each(http, self._dialect.ready))
            failures = await self._each(http, self._dialect.sleep)
            if failures:
                unclear = await self._each(http, self._dialect.look)
                _raise(failures, unclear + await self._each(http, self._dialect.wake))

    async def wake(self) -> None:
        """Wake those that sleep, with the weights that they had; raises `BackendError` after undoing what was done."""
        async with Http(self._engine, self._dialect.mend) as http:
            failures = await self._each(http, self._dialect.wake)
            if failures:
                _raise(failures, await self._each(http, self._dialect.sleep))

    async def _each(self, http: Http, step: Step) -> list[BackendError]:
        """Take the step on all replicas at once; returns what failed, in the order of the endpoints."""
        failures: dict[str, BackendError] = {}

        async def take(replica: Replica) -> None:
            try:
                await step(http, replica, self._engine)
            except BackendError as error:
                failures[replica.endpoint] = error
            except Exception as error:  # the engine's `weights` is foreign code
                failures[replica.endpoint] = BackendError(f"engine {replica.endpoint}: {str(error) or repr(error)}")

        async with anyio.create_task_group() as tasks:
            for replica in self._replicas:
                tasks.start_soon(take, replica)
        return [failures[replica.endpoint] for replica in self._replicas if replica.endpoint in failures]


def _raise(failures: list[BackendError], undoing: list[BackendError] | None = None) -> None:
    if not failures:
        return
    text = "; ".join(str(error) for error in failures)
    if undoing:
        text += "; and what was done could not be undone: " + "; ".join(str(error) for error in undoing)
    raise type(failures[0])(text)
