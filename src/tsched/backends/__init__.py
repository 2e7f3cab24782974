"""What a backend is: the page that authors of backends read.

A backend moves one kind of state between device and host memory: a process, an engine with a sleep API, tensors in
regions, something behind a remote agent. It decides nothing; the scheduler orders, the backend answers truthfully.

The rules, each with its check in `tsched.testing.backend_suite`:

1. *Round trip.* What `restore` brings back is, bit for bit, what `park` took away.
2. *Once.* An order is known by its `op`. Given again, at any later time, it is not done again: the call returns, or
   raises, what became of it, and waits for it if it is still under way. A new `op` that asks for what is already so
   (park what is parked) returns without a change.
3. *Fenced.* Tokens are kept for each (group, node, job). An order with a smaller token than one already seen raises
   `StaleToken` and changes nothing.
4. *All or nothing.* An order that fails raises `BackendError` and leaves the state where it was: nothing that was
   brought back half-way stays, no memory leaks, host memory that does not suffice is refused before anything moves
   (`HostMemoryFull`).
5. *Alone.* A failed order, or the death of one job, changes nothing for another.
6. *Discard* ends what holds the state and drops it, on the device and on the host. A job that has exited, or was never
   here, is no error.
7. *Truth.* `probe` says what the device holds now, not what was acknowledged. An order's return is no proof: between
   it and the memory's being free time may pass, and `probe` is where that is waited for.
8. *In time.* Every call can be cancelled at any await. A cancelled order may still come to its end later; the same
   `op` then finds it done, and a newer order on the same state supersedes it.

Parks happen "whatever the job is doing" only where `suspendable` is true.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from msgspec import Struct


class Order(Struct, frozen=True):
    """One node's share of one `Park`, `Restore` or `Discard`.

    `size_bytes` is what the scheduler believes the state to weigh, 0 where it does not know. `number` counts the job's
    node-calls in command order: fakes draw their faults and samples by it, real backends ignore it.
    """

    op: int
    group: str
    node: str
    job: str
    token: int
    size_bytes: int = 0
    number: int | None = None


class Presence(Struct, frozen=True):
    """Where a job's state is on one node: device bytes still held, host bytes held, and whether its process lives.

    Bytes that are shared with other jobs (a base model under several adapters) count for none of them.
    """

    resident_bytes: int = 0
    parked_bytes: int = 0
    alive: bool = True


class Sizes(Struct, frozen=True):
    """A job's device memory on one node: what a park must save, what it may drop, what is shared and stays."""

    save_bytes: int
    drop_bytes: int = 0
    shared_bytes: int = 0


@runtime_checkable
class Backend(Protocol):
    """Parks, restores, discards and probes; the module's text holds the rules.

    One instance may serve any number of groups and nodes. Calls for different (group, node, job) run concurrently.
    """

    @property
    def suspendable(self) -> bool:
        """Whether a park is possible at any moment of a job's work, not only between its phases."""
        ...

    async def park(self, order: Order) -> None:
        """Move the state to host memory and free its device memory.

        Raises:
            StaleToken: a larger token was seen.
            HostMemoryFull: host memory does not suffice; nothing was moved.
            BackendError: anything else; the state is where it was.
        """
        ...

    async def restore(self, order: Order) -> None:
        """Bring the state back and free its host memory; raises like `park`, also where nothing is parked."""
        ...

    async def discard(self, order: Order) -> None:
        """End the job's process here and drop its state; harmless where there is neither."""
        ...

    async def probe(self, group: str, node: str, job: str, *, deadline_us: int) -> Presence:
        """What is held, once the last order has had its effect.

        Returns as soon as nothing is under way; else waits, at most `deadline_us` from now, and then says what is held
        at that time. 0 answers at once.
        """
        ...

    async def sizes(self, group: str, node: str, job: str) -> Sizes:
        """What a park of this job would move, as far as that is known."""
        ...
