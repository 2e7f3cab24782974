"""The processes of a job: those that are known, and all that descend from them.

A child whose parents had all exited before it was first seen has left the tree and cannot be found again; a control
group (`cgroup`) finds that one too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from tsched.backends.process.identity import Identity, Seen, lives, look

Members = Callable[[], list[Identity]]


def census() -> list[Seen]:
    """Every process that lives. Not one moment: who is born while it is taken may be missing."""
    seen = [look(int(name)) for name in os.listdir("/proc") if name.isdecimal()]
    return [process for process in seen if process is not None]


def living_tree(known: Iterable[Identity]) -> list[Identity]:
    """Those of `known` that live, and all their descendants, by age."""
    everyone = census()
    children: dict[int, list[Identity]] = {}
    for seen in everyone:
        children.setdefault(seen.parent, []).append(seen.identity)
    here = {seen.identity for seen in everyone}
    found: dict[Identity, None] = {}
    ahead = [process for process in known if process in here]
    while ahead:
        process = ahead.pop()
        if process not in found and lives(process):  # it lived all the time, so who names it as parent is its child
            found[process] = None
            ahead += children.get(process.pid, ())
    return sorted(found, key=lambda process: (process.started, process.pid))


def ancestry(pid: int) -> list[int]:
    """This pid and those of its parents, up to the first process of the machine or container."""
    line = [pid]
    while (seen := look(line[-1])) is not None and seen.parent > 0:
        line.append(seen.parent)
    return line
