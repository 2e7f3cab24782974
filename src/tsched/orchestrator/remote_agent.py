"""One agent, as orders see it: asked until it answers, in whichever of two protocols it speaks.

An order whose answer was lost is asked again, under the same number, until whoever gave it has waited long enough; an
agent that was started anew finds out what became of it. Nothing here knows which node it is.
"""

from __future__ import annotations

import asyncio

from tsched.backends import Backend, Order
from tsched.backends.moves import give
from tsched.costs import MoveKind
from tsched.errors import BackendError
from tsched.model import SECOND_US
from tsched.orchestrator.agent_link import AgentLink, NotOffered, Unreachable
from tsched.orchestrator.foreign import Foreign
from tsched.rpc.hub_backend import ANSWER_US
from tsched.rpc.v1 import agent_pb2 as agent
from tsched.rpc.v1 import worker_pb2 as pb
from tsched.rpc.wire import KINDS, as_backend_error, order_message

ANSWER_S = ANSWER_US / SECOND_US
# A move may take longer: then it is asked after again.
CARRY_S = 30.0
MIN_BACKOFF_S, MAX_BACKOFF_S = 0.02, 1.0

_CARRY, _DESCRIBE = "/tsched.v1.Agent/Carry", "/tsched.v1.Agent/Describe"


class Agent:
    """One agent, which is asked once which protocol it speaks, and again when it does not know the one it did."""

    def __init__(self, link: AgentLink) -> None:
        self.link = link
        self._foreign = Foreign(link)
        self._speaks_ours: bool | None = None

    @property
    def foreign(self) -> bool:
        """Whether it was found to speak llm-d's protocol alone."""
        return self._speaks_ours is False

    async def close(self) -> None:
        await self._foreign.close()
        await self.link.close()

    async def describe(self, timeout_s: float = ANSWER_S) -> agent.Description:
        """What the agent says of itself; raises `BackendError` where it does not answer."""
        try:
            found = await self.link.call(_DESCRIBE, agent.DescribeRequest(), agent.Description, timeout_s)
        except NotOffered:
            found = await self._foreign.describe(timeout_s)
            self._speaks_ours = False
            return found
        if not found.version:
            raise BackendError(f"{self.link} answers nonsense: a description without a version")
        self._speaks_ours = True
        return found

    async def move(self, kind: MoveKind, order: Order) -> None:
        """Raises what the agent says went wrong."""
        while True:
            other = await self._other(None)
            if other is not None:
                await give(other, kind, order)
                return
            answer = await self._ask(KINDS[kind], order, 0, None)
            if answer is not None:
                self._heed(answer, "done")
                return

    async def ask(self, kind: pb.Kind.ValueType, order: Order, deadline_us: int, expected: str) -> pb.Answer | Backend:
        """The answer to a question, or the backend that can answer it in another protocol; in time."""
        within_s = deadline_us / SECOND_US + ANSWER_S
        try:
            async with asyncio.timeout(within_s):
                while True:
                    other = await self._other(within_s)
                    if other is not None:
                        return other
                    answer = await self._ask(kind, order, deadline_us, within_s)
                    if answer is not None:
                        return self._heed(answer, expected)
        except TimeoutError:
            raise BackendError(f"{self.link} did not answer within {within_s:g} s") from None

    async def _other(self, within_s: float | None) -> Backend | None:
        """What drives an agent of another protocol; waits until it is known whether this one is."""
        backoff_s = MIN_BACKOFF_S
        while self._speaks_ours is None:
            try:
                await self.describe(ANSWER_S if within_s is None else within_s)
            except Unreachable:
                await asyncio.sleep(backoff_s)
                backoff_s = min(2 * backoff_s, MAX_BACKOFF_S)
        return None if self._speaks_ours else self._foreign

    async def _ask(
        self, kind: pb.Kind.ValueType, order: Order, deadline_us: int, within_s: float | None
    ) -> pb.Answer | None:
        """Ask until there is an answer; None where another agent has come in its place, of another protocol."""
        message = order_message(0, kind, order, deadline_us).order
        backoff_s = MIN_BACKOFF_S
        while True:
            try:
                return await self.link.call(_CARRY, message, pb.Answer, within_s or CARRY_S)
            except NotOffered:
                self._speaks_ours = None
                await self.describe()
                if self._speaks_ours:
                    raise
                return None
            except Unreachable:
                await asyncio.sleep(backoff_s)
                backoff_s = min(2 * backoff_s, MAX_BACKOFF_S)

    def _heed(self, answer: pb.Answer, expected: str) -> pb.Answer:
        if answer.HasField("failure"):
            raise as_backend_error(answer.failure)
        said = answer.WhichOneof("outcome")
        if said != expected:
            raise BackendError(f"{self.link} answered an order with {said or 'nothing'!r} where {expected!r} was due")
        return answer
