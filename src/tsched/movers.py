"""Which backend serves which group, and what a move command asks of it, node by node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tsched.backends import Backend, Order, Presence, Sizes
from tsched.backends.moves import carry_out
from tsched.commands import Discard, Park, Restore
from tsched.costs import MoveKind
from tsched.errors import Invalid
from tsched.events import Discarded, JobLost, MoveFailed, Parked, Restored
from tsched.model import Group

Move = Park | Restore | Discard
Answer = Parked | Restored | Discarded | MoveFailed | JobLost

KINDS: Mapping[type[Move], MoveKind] = {Park: "park", Restore: "restore", Discard: "discard"}


class NoBackend:
    """Moves nothing, at once: for jobs that need no parking, or free their memory themselves before they yield."""

    suspendable = False

    async def park(self, order: Order) -> None: ...

    async def restore(self, order: Order) -> None: ...

    async def discard(self, order: Order) -> None: ...

    async def probe(self, group: str, node: str, job: str, *, deadline_us: int) -> Presence:
        return Presence()

    async def sizes(self, group: str, node: str, job: str) -> Sizes:
        return Sizes(0)


class Movers:
    """The backend of every group, and how many node-calls each job has had."""

    def __init__(self, groups: Iterable[Group], backend: Backend | Mapping[str, Backend] | None) -> None:
        none = NoBackend()
        self._backends: dict[str, Backend] = {}
        self._numbers: dict[str, int] = {}
        for group in groups:
            chosen = backend.get(group.name, none) if isinstance(backend, Mapping) else backend or none
            if group.suspendable and not chosen.suspendable:
                raise Invalid(
                    f"group {group.name!r} is suspendable, but its backend {type(chosen).__name__} cannot park "
                    "at any moment: leave `suspendable` out, or take another backend"
                )
            self._backends[group.name] = chosen
        unknown = set(backend) - set(self._backends) if isinstance(backend, Mapping) else set()
        if unknown:
            raise Invalid(f"backend: no group {min(unknown)!r}; there are: {', '.join(sorted(self._backends))}")

    def orders(self, move: Move) -> Iterator[Order]:
        """The share of each node, numbered in command order."""
        for node in move.nodes:
            number = self._numbers.get(move.job, 0)
            self._numbers[move.job] = number + 1
            yield Order(move.op, move.group, node, move.job, move.token, move.size_bytes, number)

    def unheard(self, order: Order) -> bool:
        """Whether its backend says, by a true `closed`, that nothing is answered any more."""
        return bool(getattr(self._backends[order.group], "closed", False))

    async def carry_out(self, move: Move, order: Order) -> Answer:
        """Have one node's share done and seen to be done; answers what happened, within the command's timeout."""
        return await carry_out(self._backends[order.group], KINDS[type(move)], order, move.timeout_us)
