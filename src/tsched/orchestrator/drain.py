"""Closing a group to new turns, and opening it again.

The present holder finishes its turn. Nothing is moved while a group is closed: what is on its devices stays there. That
an operator closed it is in the decision log, so that it stays closed over restarts.
"""

from __future__ import annotations

from collections.abc import Callable

from tsched.errors import UnknownGroup
from tsched.orchestrator.status_messages import DRAINED
from tsched.scheduler import Scheduler

Away = Callable[[str, str], str]


async def drain(scheduler: Scheduler, group: str) -> None:
    """No new turns; raises `UnknownGroup`. What is drained already stays so."""
    lost = _lost(scheduler, group)
    for node in scheduler.groups[group].nodes:
        if lost.get(node) != DRAINED:
            await scheduler.node_lost(group, node, DRAINED)


async def undrain(scheduler: Scheduler, group: str, away: Away) -> None:
    """On with it; a node whose agent does not answer stays lost, for that reason. Raises `UnknownGroup`.

    Args:
        away: why the agent of a group's node does not answer; empty where it does, or there is none.
    """
    for node, reason in _lost(scheduler, group).items():
        if reason != DRAINED:
            continue
        if why := away(group, node):
            await scheduler.node_lost(group, node, why)
        else:
            await scheduler.node_returned(group, node)


def _lost(scheduler: Scheduler, group: str) -> dict[str, str]:
    if group not in scheduler.groups:
        raise UnknownGroup(f"no group {group!r}; there are: {', '.join(sorted(scheduler.groups))}")
    return dict(scheduler.lost_nodes(group))
