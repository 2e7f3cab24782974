"""What one decision costs, by the length of the line; and how long a hand-over takes in process."""

from __future__ import annotations

import statistics
import time

import anyio
import anyio.lowlevel

from tsched import Group, Job, Scheduler
from tsched.engine import Engine
from tsched.events import JobAdded, PhaseRequested, PhaseYielded
from tsched.plugins import load_policy


def decision_us(policy: str, waiting: int, decisions: int = 2000) -> float:
    """CPU microseconds of one yield, the grant that it causes, and the next request, with `waiting` in line."""
    engine = Engine([Group("g")], load_policy(policy))
    jobs = min(waiting, 5000)
    for job in range(jobs):
        engine.handle(JobAdded(Job(f"j{job}", owner=f"o{job % 50}", state_bytes={"g": 0})), 0)
    for number in range(waiting + 1):
        engine.handle(
            PhaseRequested("c", number, f"j{number % jobs}", ("g",), "p", 1000 + number * 7919 % 9973), number
        )
    now, start = waiting, time.process_time()
    for step in range(decisions):
        now += 1000
        lease = engine.state.groups["g"].holder
        assert lease is not None
        engine.handle(PhaseYielded(lease.id), now)
        number = waiting + 1 + step
        engine.handle(PhaseRequested("c", number, f"j{number % jobs}", ("g",), "p", 1000 + number * 7919 % 9973), now)
    return (time.process_time() - start) / decisions * 1e6


def decisions() -> dict[str, dict[str, float]]:
    """For each policy the cost at 100 and at 100,000 waiting, best of three, and their ratio."""
    costs = {}
    for policy in ("fifo", "shortest_phase_first", "fair_share"):
        short = min(decision_us(policy, 100) for _ in range(3))
        long = min(decision_us(policy, 100_000) for _ in range(3))
        costs[policy] = {"at_100_us": short, "at_100000_us": long, "ratio": long / short}
    return costs


async def _hand_over(turns: int) -> list[float]:
    yielded, latencies = 0.0, []
    async with Scheduler([Group("g", capacity_bytes=2 << 30)], policy="fifo") as scheduler:
        for job in ("a", "b"):
            await scheduler.add_job(Job(job, state_bytes={"g": 1 << 20}))

        async def work(job: str) -> None:
            nonlocal yielded
            for _ in range(turns):
                lease = await scheduler.acquire(job, "g")
                if yielded:
                    latencies.append(time.perf_counter() - yielded)
                await anyio.lowlevel.checkpoint()
                yielded = time.perf_counter()
                await scheduler.release(lease)

        async with anyio.create_task_group() as group:
            group.start_soon(work, "a")
            group.start_soon(work, "b")
    return latencies


def hand_over(turns: int = 2000) -> dict[str, float]:
    """Microseconds from a yield to the next grant, in process, log in memory, job resident."""
    latencies = sorted(anyio.run(_hand_over, turns))
    return {
        "p50_us": statistics.median(latencies) * 1e6,
        "p99_us": latencies[len(latencies) * 99 // 100] * 1e6,
    }
