"""Who waits for whom: the graph in which a cycle is a deadlock.

Only leases that wait within another turn hold and wait, so they are the only nodes with edges: a lease that asks for
more groups points to the leases that hold them. A reservation is not a hold: it points on to the holders that it waits
for, and is stepped over where that would close a cycle (rules E7, E8).
"""

from __future__ import annotations

from tsched.state import State
from tsched.turns import Lease, Request


def blockers(state: State, request: Request) -> list[Lease]:
    """The leases that hold a group which the request wants."""
    holders = (state.groups[name].holder for name in request.groups)
    return [holder for holder in holders if holder is not None]


def path(state: State, request: Request, target: int) -> list[Lease] | None:
    """The chain of leases from what the request waits for to the lease `target`, or None."""
    seen: set[int] = set()
    stack = [[lease] for lease in reversed(blockers(state, request))]
    while stack:
        chain = stack.pop()
        last = chain[-1]
        if last.id == target:
            return chain
        if last.id in seen:
            continue
        seen.add(last.id)
        nested = state.requests.get(last.nested) if last.nested is not None else None
        if nested is not None:
            stack.extend([*chain, lease] for lease in reversed(blockers(state, nested)))
    return None


def describe(state: State, request: Request, chain: list[Lease]) -> str:
    """The cycle in words: every job, what it holds and what it waits for."""
    holder = state.leases[request.within] if request.within is not None else chain[-1]
    parts = [_link(holder, request)]
    for lease in chain[:-1]:
        nested = state.requests.get(lease.nested) if lease.nested is not None else None
        parts.append(_link(lease, nested))
    return "; ".join(parts)


def _link(lease: Lease, wanted: Request | None) -> str:
    held = ", ".join(lease.tokens)
    wants = ", ".join(wanted.groups) if wanted is not None else "nothing"
    return f"job {lease.job!r} holds {held} and waits for {wants}"
