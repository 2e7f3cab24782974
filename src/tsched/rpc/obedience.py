"""What a worker does for its job's state: what it is ordered, and what belongs to the ends of a turn.

Orders are carried out by the backend in the executor, and what came of each is sent back. Of a backend's optional
methods `refill` is called at the beginning of a turn and `trim` at its end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tsched.backends import Backend, Order
from tsched.backends.moves import give
from tsched.errors import BackendError
from tsched.rpc.executor import Executor
from tsched.rpc.v1 import worker_pb2 as pb
from tsched.rpc.wire import MOVES, failure, order_of, presence_message, sizes_message

Place = tuple[str, str, str]

# No operation of the scheduler's, nor the undoing of one.
FAREWELL = -(2**62)


class Obedience:
    """One place's orders, carried out by one backend."""

    def __init__(self, backend: Backend, place: Place, send: Callable[[pb.FromWorker], None]) -> None:
        self._backend: Any = backend
        self._place, self._send = place, send
        self._token = 0
        self._executor = Executor(f"tsched orders of {place[2]}")

    def obey(self, message: pb.Order) -> None:
        """Begin to carry out; the answer is sent when it is done."""
        self._executor.start(self._obey, message)

    def refill(self) -> None:
        """A turn begins: what the last one dropped is allocated again; raises what the backend does."""
        if hasattr(self._backend, "refill"):
            self._backend.refill(*self._place)

    def trim(self) -> int | None:
        """A turn ends: what need not stay is dropped. Answers what stays, where the backend measures it."""
        return int(self._backend.trim(*self._place)) if hasattr(self._backend, "trim") else None

    def drop(self, timeout_s: float) -> None:
        """The job has finished here: drop its state, as a discard does; raises `BackendError`."""
        order = Order(FAREWELL, *self._place, token=self._token)
        try:
            self._executor.start(self._backend.discard, order).result(timeout_s)
        except BackendError:
            raise
        except Exception as error:
            name = self._place[2]
            raise BackendError(f"the state of job {name!r} was not dropped: {type(error).__name__} {error}") from error

    def close(self, timeout_s: float) -> None:
        self._executor.close(timeout_s)

    async def _obey(self, message: pb.Order) -> None:
        try:
            answer = await self._answer(message, order_of(message))
        except Exception as error:  # a backend is foreign code, and the scheduler must hear of whatever it raises
            told = failure(
                error if isinstance(error, BackendError) else BackendError(f"{type(error).__name__}: {error}")
            )
            answer = pb.Answer(failure=told)
        answer.number = message.number
        self._send(pb.FromWorker(answer=answer))

    async def _answer(self, message: pb.Order, order: Order) -> pb.Answer:
        place = order.group, order.node, order.job
        if place != self._place:
            raise BackendError(f"an order for job {order.job!r} on {order.group}/{order.node} reached {self._place}")
        kind = MOVES.get(message.kind)
        if kind is not None:
            self._token = max(self._token, order.token)
            await give(self._backend, kind, order)
            return pb.Answer(done=pb.Done())
        if message.kind == pb.KIND_PROBE:
            return pb.Answer(
                presence=presence_message(await self._backend.probe(*place, deadline_us=message.deadline_us))
            )
        if message.kind == pb.KIND_SIZES:
            return pb.Answer(sizes=sizes_message(await self._backend.sizes(*place)))
        raise BackendError(f"this worker knows no order of kind {message.kind}: install the same tsched on both sides")
