"""Who is next on an idle group.

A reservation that takes what comes free, a job that the group is held for, or the policy's choice; and whoever of
these waits for a holder that asks for more lets that one go first.
"""

from __future__ import annotations

from tsched import waitfor
from tsched.residency import Standing
from tsched.state import GroupState, State
from tsched.turns import Request


def next_request(state: State, group: GroupState) -> Request | None:
    """Who is next on this idle group: who was selected for it, or who is first and need not give way (rule E3)."""
    if group.selected is not None and len(group.selected.groups) == 1:
        return group.selected
    if not group.reserving and not group.nested and group.hold is None and state.policy.window == 1:
        head = group.queue.head()
        if head is None or len(head.groups) == 1:
            return head
    first = _first(state, group)
    return _give_way(state, group, first) if first is not None and group.nested else first


def _first(state: State, group: GroupState) -> Request | None:
    """The oldest reservation, the job that the group is held for, or the policy's choice (rules E9, P8)."""
    for reservation in group.reserving:
        if _reachable(state, reservation):
            return _in_rank_order(group, reservation, _choice(state, group))
    if group.hold is not None and group.hold[1] > state.now:
        waiting = group.by_job.get(group.hold[0])
        return waiting[0] if waiting else None
    request = _choice(state, group)
    if request is None or len(request.groups) == 1 or _reachable(state, request):
        return request
    return next((other for other in group.queue.ordered() if _reachable(state, other)), None)


def _in_rank_order(group: GroupState, reservation: Request, choice: Request | None) -> Request:
    """A reservation was first on another group; here a request for this group alone that ranks before it goes first.

    Without this, requests for several groups would carry each other past a waiter for ever, and no bound would hold.
    """
    alone = choice is not None and len(choice.groups) == 1
    return choice if choice is not None and alone and group.queue.before(choice, reservation) else reservation


def _give_way(state: State, group: GroupState, first: Request) -> Request:
    """Who cannot be served before some holder yields lets that holder's nested request go first (rule E8)."""
    name = group.group.name
    passed: list[Request] = []
    while True:
        for nested in group.nested:
            if nested is first or nested in passed or not _reachable(state, nested):
                continue
            if waitfor.gives_way(state, first, nested, name):
                passed.append(first)
                first = nested
                break
        else:
            return first


def _choice(state: State, group: GroupState) -> Request | None:
    if state.policy.window == 1:
        return group.queue.head()
    first = group.queue.first(state.policy.window)
    return first[state.policy.choose(first, lambda r: is_resident(group, r.job))] if first else None


def _reachable(state: State, request: Request) -> bool:
    """No group of the request has lost a node: what waits for one must not hold up the others (rule E18)."""
    return not any(state.groups[name].lost for name in request.groups)


def is_resident(group: GroupState, job: str) -> bool:
    place = group.ledger.places.get(job)
    return place is not None and place.standing is Standing.RESIDENT and not place.unsafe
