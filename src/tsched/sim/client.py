"""One client in a simulation: where it stands in its program, and which leases it holds."""

from __future__ import annotations

from typing import final

from tsched.sim.draw import AcquireOp, DrawnContext


@final
class Client:
    """A cursor over a `DrawnContext`: the `index` of its next operation, the `position` of its next duration.

    `asking` is the acquire that waits for its grant. A heap entry of this client counts only while its number is
    `epoch`: a suspension or an end raises it. `left_us` is what a suspended run still has to go; it goes on when no
    lease is `paused` any more. `sleeping`: an entry of this client counts.
    """

    __slots__ = (
        "_iteration_us",
        "asking",
        "durations",
        "epoch",
        "index",
        "job",
        "leases",
        "left_us",
        "name",
        "ops",
        "over",
        "paused",
        "position",
        "refused",
        "request",
        "sleeping",
        "turns_left",
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
        self.ops = drawn.ops
        self.durations = drawn.durations
        self.index = 0
        self.position = 0
        self.turns_left = drawn.iterations - 1
        self._iteration_us = drawn.iteration_us

    def later_us(self) -> int:
        """What the iterations after this one are expected to take."""
        return self.turns_left * self._iteration_us

    def stop(self) -> None:
        """Do nothing any more."""
        self.over = True
        self.asking = None
        self.sleeping = False
        self.epoch += 1
