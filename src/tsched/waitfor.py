"""Who waits for whom: the graph in which a cycle is a deadlock.

A lease that asks for more groups while it holds some points to the leases that hold them; a cycle of such leases is
refused (rule E7). A request that reserves groups holds nothing: it points to the holders of its groups and to
the reservations that come before it, and is stepped over by a nested request whose lease it waits for (rule E8).
"""

from __future__ import annotations

from collections.abc import Iterator

from tsched.state import State
from tsched.turns import Key, Lease, Request


def blockers(state: State, request: Request) -> list[Lease]:
    """The leases that hold a group which the request wants."""
    holders = (state.groups[name].holder for name in request.groups)
    return [holder for holder in holders if holder is not None]


def path(state: State, request: Request, target: int) -> list[Lease] | None:
    """The chain of leases, each waiting for what the next holds, from the request to the lease `target`, or None."""
    if target not in state.leases:
        return None
    root = _root(state, state.leases[target])
    seen: set[int] = set()
    stack = [[lease] for lease in reversed(blockers(state, request))]
    while stack:
        chain = stack.pop()
        last = chain[-1]
        if _root(state, last) == root:
            return chain
        if last.id in seen:
            continue
        seen.add(last.id)
        for nested in pending(state, last):
            stack.extend([*chain, lease] for lease in reversed(blockers(state, nested)))
    return None


def gives_way(state: State, first: Request, nested: Request, group: str) -> bool:
    """Whether `first`, whose turn on the idle `group` it is, cannot be served before `nested` was.

    A holder in the way is a fact. A reservation in the way is the order as it stands, so it does not count where
    `nested` waits for `first` by the same token.
    """
    if nested.within is None:
        return False
    if path(state, first, nested.within) is not None:
        return True
    mutual = first.within is not None and waits_for(state, nested, first.within, group)
    return not mutual and waits_for(state, first, nested.within, group)


def waits_for(state: State, request: Request, target: int, group: str) -> bool:
    """Whether the request, if it is next on `group`, waits for the lease `target` to yield, reservations counted."""
    holder = state.leases.get(target)
    if holder is None:
        return False
    root = _root(state, holder)
    seen: set[Key] = set()
    stack = [request]
    while stack:
        waiting = stack.pop()
        if waiting.key in seen:
            continue
        seen.add(waiting.key)
        for lease in blockers(state, waiting):
            if _root(state, lease) == root:
                return True
            stack.extend(pending(state, lease))
        stack.extend(_before(state, waiting, group if waiting is request else None))
    return False


def _before(state: State, request: Request, its_turn: str | None) -> Iterator[Request]:
    """The reservations that take a group of the request before it does, but for the group on which it is next.

    They keep to the order of reservation among themselves, to the policy's rank against a request for one group,
    and are stepped over by a nested request whose lease they wait for.
    """
    for name in request.groups:
        group = state.groups[name]
        for other in group.reserving if name != its_turn else ():
            if other is request:
                break
            if len(request.groups) == 1 and not group.queue.before(other, request):
                continue
            if request.within is None or path(state, other, request.within) is None:
                yield other


def _root(state: State, lease: Lease) -> int:
    """The context of a lease: the outermost lease within which it was asked for."""
    within = lease.request.within
    while within is not None and within in state.leases:
        lease = state.leases[within]
        within = lease.request.within
    return lease.id


def pending(state: State, lease: Lease) -> list[Request]:
    """What the lease's context waits for: until then it gives nothing back."""
    root = _root(state, lease)
    asking = [other for other in state.leases.values() if other.nested is not None and _root(state, other) == root]
    return [state.requests[other.nested] for other in asking if other.nested in state.requests]


def describe(state: State, request: Request, chain: list[Lease]) -> str:
    """The cycle in words: every job, what it holds and what it waits for."""
    holder = state.leases[request.within] if request.within is not None else chain[-1]
    links = [_link(holder, request)]
    for lease in chain[:-1]:
        waiting = pending(state, lease)
        links.append(_link(lease, waiting[0] if waiting else None))
    return "; ".join(links)


def _link(lease: Lease, wanted: Request | None) -> str:
    held = ", ".join(lease.tokens)
    wants = ", ".join(wanted.groups) if wanted is not None else "nothing"
    return f"job {lease.job!r} holds {held} and waits for {wants}"
