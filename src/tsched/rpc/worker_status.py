"""What a hub shows of a worker, at one moment."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """One worker process.

    `pid` is what it said of itself, on its own host. `connected` is false while it may still come back. `leases` are
    the numbers of those it holds, `tags` the regions of its state.
    """

    client: str
    job: str
    group: str
    node: str
    pid: int
    connected: bool
    moves: bool
    leases: tuple[int, ...]
    tags: tuple[str, ...]
