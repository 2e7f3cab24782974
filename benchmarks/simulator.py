"""The simulator against SimPy 4 on the same plain FIFO queue, and at scale."""

from __future__ import annotations

import resource
import time
from random import Random

import simpy

from tsched import Group, Job
from tsched.plugins import load_policy
from tsched.sim import Acquire, Context, Fixed, JobProgram, Recorded, Run, Workload, Yield, simulate
from tsched.sim.simulator import Simulator

HOLD_US = 1000


def _think(job: int, cycles: int, mean_us: int) -> list[int]:
    rng = Random(job)
    return [rng.randrange(1, 2 * mean_us) for _ in range(cycles)]


def queue(jobs: int, cycles: int) -> Workload:
    """`jobs` jobs on one group: think, acquire, hold, yield; utilisation about 0.9."""
    programs = [
        JobProgram(
            Job(f"j{job}", state_bytes={"g": 0}),
            (
                Context(
                    (
                        Run(Recorded(tuple(_think(job, cycles, jobs * HOLD_US)))),
                        Acquire(("g",)),
                        Run(Fixed(HOLD_US)),
                        Yield(("g",)),
                    ),
                    cycles,
                ),
            ),
        )
        for job in range(jobs)
    ]
    return Workload("queue", (Group("g"),), tuple(programs))


def simpy_cycles(jobs: int, cycles: int) -> float:
    """Cycles per CPU-second of SimPy, which keeps no decision log."""
    environment = simpy.Environment()
    resource_ = simpy.Resource(environment, 1)

    def job(thinks: list[int]):  # type: ignore[no-untyped-def]
        for think in thinks:
            yield environment.timeout(think)
            with resource_.request() as turn:
                yield turn
                yield environment.timeout(HOLD_US)

    for index in range(jobs):
        environment.process(job(_think(index, cycles, jobs * HOLD_US)))
    start = time.process_time()
    environment.run()
    return jobs * cycles / (time.process_time() - start)


def tsched_cycles(jobs: int, cycles: int) -> float:
    """Cycles per CPU-second of the simulator, its decision log kept in memory."""
    simulator = Simulator(queue(jobs, cycles).draw(), load_policy("fifo"))
    start = time.process_time()
    simulator.run()
    return jobs * cycles / (time.process_time() - start)


def against_simpy(rounds: int = 5) -> dict[str, float]:
    """The best of each, measured turn and turn about."""
    ours = theirs = 0.0
    for _ in range(rounds):
        theirs = max(theirs, simpy_cycles(200, 100))
        ours = max(ours, tsched_cycles(200, 100))
    return {"simpy_cycles_per_cpu_s": theirs, "tsched_cycles_per_cpu_s": ours, "ratio": ours / theirs}


def at_scale(jobs: int = 2000, iterations: int = 100, groups: int = 500) -> dict[str, float]:
    """2,000 jobs of 100 iterations on 500 groups: CPU seconds and peak memory of this process."""
    names = [f"g{index}" for index in range(groups)]
    programs = []
    for job in range(jobs):
        first, second = names[job % groups], names[(job * 7 + 3) % groups]
        steps = (
            Acquire((first,), "generate"),
            Run(Fixed(9_000_000 + job)),
            Yield((first,)),
            Run(Fixed(3_000_000 + job)),
            Acquire((second,), "train"),
            Run(Fixed(4_000_000 + job)),
            Yield((second,)),
        )
        sizes = {first: 1 << 30, second: 1 << 30}
        programs.append(JobProgram(Job(f"j{job}", state_bytes=sizes), (Context(steps, iterations),)))
    workload = Workload("scale", tuple(Group(name, capacity_bytes=2 << 30) for name in names), tuple(programs))
    start = time.process_time()
    simulate(workload, "fifo", keep=False)
    seconds = time.process_time() - start
    return {"cpu_s": seconds, "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}
