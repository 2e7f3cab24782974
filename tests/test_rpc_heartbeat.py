"""A lease is renewed in time, whatever other leases there are."""

from __future__ import annotations

import threading

from tsched.rpc.heartbeat import Heartbeat
from tsched.rpc.v1 import worker_pb2 as pb
from tsched.rpc.worker_lease import WorkerLease


def lease(number: int, ttl_s: float) -> WorkerLease:
    return WorkerLease(pb.Grant(lease=number, tokens={"g": 1}, ttl_s=ttl_s), "a", "c", number)


def test_a_lease_that_lives_long_does_not_stop_the_renewal_of_another() -> None:
    leases, renewed = [lease(1, 1e15)], threading.Semaphore(0)
    seen: list[int] = []

    def renew(which: WorkerLease) -> None:
        seen.append(which.id)
        renewed.release()

    heartbeat = Heartbeat(lambda: list(leases), renew)
    heartbeat.mind(leases[0])
    assert renewed.acquire(timeout=20)
    leases.append(lease(2, 0.05))
    heartbeat.mind(leases[1])
    while seen.count(2) < 3:
        assert renewed.acquire(timeout=20)
    heartbeat.close()


def test_leases_without_an_end_need_no_thread() -> None:
    forever = WorkerLease(pb.Grant(lease=1, tokens={"g": 1}), "a", "c", 1)
    before = threading.active_count()
    Heartbeat(lambda: [forever], lambda _: None).mind(forever)
    assert threading.active_count() == before
