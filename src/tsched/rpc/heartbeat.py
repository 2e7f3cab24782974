"""Renews a worker's leases before their time is over, from a thread that ends with its process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from tsched.rpc.worker_lease import WorkerLease

# A lease is renewed so many times within its time to live, so that one lost renewal does not end it.
BEATS = 3
LEAST_S, MOST_S = 0.01, 600.0


class Heartbeat:
    """Beats as often as the shortest-lived of the leases needs, and sleeps while there is none."""

    def __init__(self, leases: Callable[[], Iterable[WorkerLease]], renew: Callable[[WorkerLease], None]) -> None:
        self._leases, self._renew = leases, renew
        self._news = threading.Event()
        self._lock = threading.Lock()
        self._over = False
        self._thread: threading.Thread | None = None

    def mind(self, lease: WorkerLease) -> None:
        """A lease was granted; one with a time to live is renewed from now on."""
        if lease.ttl_s is None:
            return
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="tsched heartbeat", daemon=True)
                self._thread.start()
        self._news.set()

    def close(self) -> None:
        self._over = True
        self._news.set()

    def _run(self) -> None:
        while not self._over:
            lifetimes = []
            for lease in self._leases():
                if lease.ttl_s is not None and lease.held:
                    self._renew(lease)
                    lifetimes.append(lease.ttl_s)
            shortest_s = min(lifetimes, default=None)
            self._news.wait(None if shortest_s is None else min(max(shortest_s / BEATS, LEAST_S), MOST_S))
            self._news.clear()
