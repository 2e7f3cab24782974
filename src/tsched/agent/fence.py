"""The greatest token seen for each job's state, over restarts: an order with a smaller one is refused.

An orchestrator of another protocol has no tokens. It is given the greatest one seen, so that it is obeyed, and never
stands in the way of one that has them.
"""

from __future__ import annotations

from itertools import count

from tsched.agent.state_file import StateFile
from tsched.backends import Order
from tsched.costs import MoveKind
from tsched.errors import StaleToken

# Below every operation of a scheduler, and every undoing of one.
_FIRST_OP = -(2**61)


class Fence:
    """Tokens by (group, node, job)."""

    def __init__(self, state: StateFile) -> None:
        self._state = state
        self._ops = count(_FIRST_OP, -1)

    def check(self, kind: MoveKind, order: Order) -> None:
        """Raises `StaleToken` where a greater token was seen; else this one was."""
        place = order.group, order.node, order.job
        seen = self._state.tokens.get(place, 0)
        if order.token < seen:
            raise StaleToken(
                f"{kind} of job {order.job!r} on {order.group}/{order.node}: token {order.token} is stale, {seen} "
                "was seen"
            )
        if order.token > seen:
            self._state.tokens.pop(place, None)
            self._state.tokens[place] = order.token
            self._state.write()

    def unnumbered(self, group: str, node: str, job: str) -> Order:
        """A new order for one who sends neither operation nor token."""
        return Order(next(self._ops), group, node, job, self._state.tokens.get((group, node, job), 0))
