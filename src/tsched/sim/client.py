"""One client in a simulation: where it stands in its program, and which leases it holds."""

from __future__ import annotations

from tsched.sim.draw import AcquireOp, DrawnContext, Op


class Client:
    """A cursor over a `DrawnContext`.

    `asking` is the acquire that waits for its grant. A heap entry of this client counts only while its number is
    `epoch`: a suspension or an end raises it. `left_us` is what a suspended run still has to go; it goes on when no
    lease is `paused` any more. `sleeping`: an entry of this client counts.
    """

    __slots__ = (
        "_drawn",
        "_durations",
        "_op",
        "_ops",
        "_position",
        "_turns_left",
        "asking",
        "epoch",
        "job",
        "leases",
        "left_us",
        "name",
        "over",
        "paused",
        "refused",
        "request",
        "sleeping",
        "until_us",
    )

    def __init__(self, drawn: DrawnContext) -> None:
        self.name = drawn.client
        self.job = drawn.job
        self.leases = [0] * drawn.slots
        self.request = 0
        self.asking: AcquireOp | None = None
        self.epoch = 0
        self.until_us = 0
        self.left_us: int | None = None
        self.paused: set[int] = set()
        self.sleeping = False
        self.refused = ""
        self.over = False
        self._drawn = drawn
        self._ops = drawn.ops
        self._durations = drawn.durations
        self._op = 0
        self._position = 0
        self._turns_left = drawn.iterations - 1

    def next_op(self) -> Op | None:
        """The next operation, or None at the end of the last iteration."""
        index = self._op
        if index == len(self._ops):
            if self._turns_left == 0:
                return None
            self._turns_left -= 1
            index = 0
        self._op = index + 1
        return self._ops[index]

    def next_length(self) -> int:
        length = self._durations[self._position]
        self._position += 1
        return length

    def later_us(self) -> int:
        """What the iterations after this one are expected to take."""
        return self._turns_left * self._drawn.iteration_us

    def stop(self) -> None:
        """Do nothing any more."""
        self.over = True
        self.asking = None
        self.sleeping = False
        self.epoch += 1
