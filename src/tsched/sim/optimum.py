"""The best order there is, found by trying all that could matter: for small cases, as a yardstick.

A schedule is told by the order in which acquires are granted, each as early as it can be. The search grants one after
another, in every order, and gives a branch up when even its lower bound does not beat the best known. Switches cost
what the caller says, a constant for each group.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tsched.errors import Invalid
from tsched.sim.draw import AcquireOp, DrawnContext, RunOp
from tsched.sim.workload import Drawn

MOST_NODES = 2_000_000


class Part(NamedTuple):
    """What a client does from one grant to its next request, or to its end; times are from the grant.

    `rest_us` is how long after `length_us` its last yield comes, if it never waits; below 0 where that was before.
    """

    groups: tuple[str, ...]
    yields: tuple[tuple[int, str], ...]
    length_us: int
    rest_us: int


class _State(NamedTuple):
    """`at` is the next part of each client and `ready_us` when it asks for it; of each group, when it is free (None
    while held), and who was there last."""

    at: tuple[int, ...]
    ready_us: tuple[int, ...]
    free_us: tuple[int | None, ...]
    last: tuple[int, ...]
    finish_us: int


def optimum_us(drawn: Drawn, switch_us: Mapping[str, int] | None = None, most_nodes: int = MOST_NODES) -> int:
    """The smallest makespan, from first request to last yield; raises `Invalid` where the search would take too long.

    Args:
        drawn: a small workload.
        switch_us: what another job's turn on a group must wait after the turn before; nothing where left out.
        most_nodes: how many partial schedules may be looked at.
    """
    contexts = [(index, job.arrival_us, context) for index, job in enumerate(drawn.jobs) for context in job.contexts]
    groups = [group.name for group in drawn.workload.groups]
    search = _Search(
        [job for job, _, _ in contexts],
        [_parts(context) for _, _, context in contexts],
        groups,
        [(switch_us or {}).get(group, 0) for group in groups],
        most_nodes,
    )
    start = _State(
        tuple(0 for _ in contexts),
        tuple(arrival + parts[0].length_us for (_, arrival, _), parts in zip(contexts, search.parts, strict=True)),
        tuple(0 for _ in groups),
        tuple(-1 for _ in groups),
        0,
    )
    return search.best(start) - drawn.first_request_us


class _Search:
    """Depth first, most promising first; `parts[client][0]` is what comes before the first request."""

    def __init__(
        self, jobs: list[int], parts: list[list[Part]], groups: list[str], switches: list[int], most_nodes: int
    ) -> None:
        self.jobs = jobs
        self.parts = parts
        self.groups = {group: index for index, group in enumerate(groups)}
        self.switches = switches
        self.left = most_nodes
        self.known = 1 << 62
        self.seen: dict[tuple[tuple[int, ...], tuple[int, ...]], list[tuple[int, ...]]] = {}

    def best(self, state: _State) -> int:
        self._visit(state)
        return self.known

    def _visit(self, state: _State) -> None:
        self.left -= 1
        if self.left < 0:
            raise Invalid("optimum: too many orders to try, use fewer jobs or iterations")
        open_clients = [c for c, at in enumerate(state.at) if at + 1 < len(self.parts[c])]
        if not open_clients:
            self.known = min(self.known, state.finish_us)
            return
        if self._dominated(state):
            return
        children = [child for c in open_clients if (child := self._grant(state, c)) is not None]
        for bound, _, child in sorted((self._bound(child), index, child) for index, child in enumerate(children)):
            if bound < self.known:
                self._visit(child)

    def _grant(self, state: _State, client: int) -> _State | None:
        """Let this client have its next turn as early as can be, or None while a group is held."""
        part = self.parts[client][state.at[client] + 1]
        free, last = list(state.free_us), list(state.last)
        when = state.ready_us[client]
        for group in part.groups:
            index = self.groups[group]
            since = free[index]
            if since is None:
                return None
            idle = max(since, state.ready_us[client])
            when = max(when, idle + self._switch(state, index, client, idle))
        for group in part.groups:
            free[self.groups[group]] = None
            last[self.groups[group]] = self.jobs[client]
        finish = state.finish_us
        for offset, group in part.yields:
            free[self.groups[group]] = when + offset
            finish = max(finish, when + offset)
        at, ready = list(state.at), list(state.ready_us)
        at[client] += 1
        ready[client] = when + part.length_us
        return _State(tuple(at), tuple(ready), tuple(free), tuple(last), finish)

    def _switch(self, state: _State, group: int, client: int, now: int) -> int:
        """What bringing this client in costs: nothing after its own job, or one that has left by then."""
        before = state.last[group]
        if before in (-1, self.jobs[client]):
            return 0
        clients = [c for c, job in enumerate(self.jobs) if job == before]
        left = all(state.at[c] + 1 == len(self.parts[c]) and state.ready_us[c] <= now for c in clients)
        return 0 if left else self.switches[group]

    def _bound(self, state: _State) -> int:
        """No completion of this partial schedule ends before this."""
        paths = [ready + self.parts[c][state.at[c]].rest_us for c, ready in enumerate(state.ready_us)]
        return max([state.finish_us, *paths])

    def _dominated(self, state: _State) -> bool:
        """Whether the same position was reached before, and nothing was later then."""
        key = (state.at, state.last)
        times = (*state.ready_us, *(-1 if free is None else free for free in state.free_us), state.finish_us)
        others = self.seen.setdefault(key, [])
        if any(all(a <= b for a, b in zip(other, times, strict=True)) for other in others):
            return True
        others.append(times)
        return False


def _parts(context: DrawnContext) -> list[Part]:
    """The program cut at its requests; the first part is what comes before the first of them."""
    cuts: list[tuple[tuple[str, ...], list[tuple[int, str]], int]] = [((), [], 0)]
    slots: dict[int, list[str]] = {}
    durations = iter(context.durations)
    clock = last_yield = 0
    for _ in range(context.iterations):
        for op in context.ops:
            _, yields, begun = cuts[-1]
            if isinstance(op, RunOp):
                clock += next(durations)
            elif isinstance(op, AcquireOp):
                slots[op.slot] = list(op.groups)
                cuts.append((op.groups, [], clock))
            else:
                given = op.groups or tuple(slots[op.slot])
                slots[op.slot] = [group for group in slots[op.slot] if group not in given]
                yields += [(clock - begun, group) for group in given]
                last_yield = clock
    ends = [begun for _, _, begun in cuts[1:]] + [clock]
    return [
        Part(groups, tuple(yields), end - begun, last_yield - end)
        for (groups, yields, begun), end in zip(cuts, ends, strict=True)
    ]
