"""Parks inference engines by their own sleep interface over HTTP: vLLM and SGLang.

    backend = AppBackend()
    backend.register("samplers", "0", "a", Engine(
        dialect="vllm", endpoints=("http://127.0.0.1:8000",), pids=(pid,), held_bytes=Nvml().holder([pid])))

An engine is believed about nothing that memory can show. A sleep that was acknowledged is a park once `probe` has seen
its memory gone; a wake is a restore once its memory is back. What the backend promises beyond the contract:

- Order of a wake: weights, then their loading where they were discarded, then the KV cache, which is emptied, since
  what it holds belongs to other weights. A job that is told to go on has the weights that it had.
- An engine of several replicas sleeps and wakes as one. If one fails, the others are brought back.
- A region that is awake is never woken again, however often a restore is ordered.
- Requests in flight are aborted. There are none between the phases of a job that keeps to its leases; those of a job
  whose lease was taken away must not go on. So the backend is not suspendable: an aborted request is lost work.
- Every call has a timeout, and a discard ends a move that hangs.

One thing it cannot mend: vLLM ignores a sleep while it is half awake. If a wake runs out of memory between two regions,
that memory stays until a later wake succeeds or the engine is discarded. `probe` says so, and no turn is granted on it;
`free_bytes` prevents it.
"""

from __future__ import annotations

import threading

import anyio

from tsched.backends import Order, Presence, Sizes
from tsched.backends.app.engine import Engine
from tsched.backends.app.place import Place
from tsched.backends.nvml import INTERVAL_S, MemoryWatch
from tsched.backends.orders import Key, OrderBook
from tsched.errors import BackendError, HostMemoryFull
from tsched.model import SECOND_US

__all__ = ["AppBackend", "Engine"]


class AppBackend:
    """Serves any groups and nodes; an engine is registered for each job, and again when it was started anew.

    Args:
        host_bytes: host memory for the weights of sleeping engines, all together; None for no limit.
        interval_s: how often a probe that waits looks at memory.
    """

    suspendable = False

    def __init__(self, *, host_bytes: int | None = None, interval_s: float = INTERVAL_S) -> None:
        self._host_bytes = host_bytes
        self._interval_s = interval_s
        self._book = OrderBook()
        self._places: dict[Key, Place] = {}
        self._reserving = threading.Lock()

    def register(self, group: str, node: str, job: str, engine: Engine) -> None:
        """Name the job's engine there, in place of one that was named before.

        Raises:
            ProcessGone: one of its processes does not run.
        """
        self._places[group, node, job] = Place(engine, f"the engine of job {job!r} on {group}/{node}")

    def unregister(self, group: str, node: str, job: str) -> None:
        """Forget the job's engine, which goes on."""
        self._places.pop((group, node, job), None)

    async def park(self, order: Order) -> None:
        await self._book.obey("park", order, lambda: self._place(order).sleep(self._reserve))

    async def restore(self, order: Order) -> None:
        await self._book.obey("restore", order, lambda: self._place(order).wake(order.size_bytes))

    async def discard(self, order: Order) -> None:
        """End the engine; a move of it that is under way is given up."""
        place = self._places.get((order.group, order.node, order.job))
        if place is None:
            await self._book.obey("discard", order, _nothing)
        else:
            await self._book.obey("discard", order, place.end, first=place.interrupt)

    async def probe(self, group: str, node: str, job: str, *, deadline_us: int) -> Presence:
        until = anyio.current_time() + deadline_us / SECOND_US
        await self._book.settle(group, node, job, deadline_us=deadline_us)
        place = self._places.get((group, node, job))
        if place is None:
            return Presence()
        left_us = max(0, round((until - anyio.current_time()) * SECOND_US))
        watch = MemoryWatch(place.engine.held_bytes, interval_s=self._interval_s)
        held = await watch.until(place.settled, deadline_us=left_us)
        return await anyio.to_thread.run_sync(place.presence, held, abandon_on_cancel=True)

    async def sizes(self, group: str, node: str, job: str) -> Sizes:
        place = self._places.get((group, node, job))
        if place is None:
            return Sizes(0)
        return await anyio.to_thread.run_sync(place.sizes, abandon_on_cancel=True)

    def _place(self, order: Order) -> Place:
        place = self._places.get((order.group, order.node, order.job))
        if place is None:
            raise BackendError(
                f"job {order.job!r} has no engine on {order.group}/{order.node}: register it before its first turn"
            )
        return place

    def _reserve(self, place: Place) -> None:
        """Count the place's copies from now on, if the host has room for them."""
        with self._reserving:
            used, more = sum(other.host_copies_bytes for other in list(self._places.values())), place.host_bytes
            if self._host_bytes is not None and used + more > self._host_bytes:
                raise HostMemoryFull(
                    f"park: {place.name} needs {more} bytes of host memory, {used} are taken, and {self._host_bytes} "
                    "may be: take mode 'discard' for engines whose weights are loaded again anyway"
                )
            place.parking = True


def _nothing() -> None:
    """There is no engine to end."""
