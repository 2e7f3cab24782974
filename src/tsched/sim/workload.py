"""A workload: groups, jobs with their programs, what switches cost, and what may go wrong.

    drawn = Workload("two jobs", groups, jobs).draw(seed=1)

is checked when it is made, and definite once drawn: the same seed gives the same integers under every policy.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from msgspec import Struct, field

from tsched.costs import Bandwidth, FixedTable, Samples
from tsched.faults import FaultRates
from tsched.model import Group
from tsched.sim import bounds
from tsched.sim.check import check
from tsched.sim.draw import DrawnJob, draw_job
from tsched.sim.program import JobProgram
from tsched.sim.recorded_costs import RecordedCosts

WorkloadCosts = Bandwidth | FixedTable | Samples | RecordedCosts


class Workload(Struct, frozen=True, forbid_unknown_fields=True):
    """What is to be run. `recorded_makespan_us` is what the real run took, where there was one."""

    name: str
    groups: tuple[Group, ...]
    jobs: tuple[JobProgram, ...]
    costs: WorkloadCosts = field(default_factory=FixedTable)
    faults: FaultRates = field(default_factory=FaultRates)
    seed: int = 0
    recorded_makespan_us: int | None = None
    meta: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check(self)

    def draw(self, seed: int | None = None) -> Drawn:
        """Resolve every duration; without a seed, with the workload's own."""
        seed = self.seed if seed is None else seed
        return Drawn(self, seed, tuple(draw_job(program, seed) for program in self.jobs))

    def only(self, job: str) -> Workload:
        """The same with this job alone."""
        return Workload(
            self.name,
            self.groups,
            tuple(program for program in self.jobs if program.job.name == job),
            self.costs,
            self.faults,
            self.seed,
            None,
            self.meta,
        )


class Drawn:
    """A workload of which nothing is left to chance."""

    def __init__(self, workload: Workload, seed: int, jobs: tuple[DrawnJob, ...]) -> None:
        self.workload = workload
        self.seed = seed
        self.jobs = jobs

    @cached_property
    def first_request_us(self) -> int:
        """When the first request comes: no policy can change that."""
        return bounds.first_request_us(self.jobs)

    @cached_property
    def lower_bound_us(self) -> int:
        """What no policy's makespan can beat."""
        return bounds.lower_bound_us(self.jobs)

    def only(self, job: str) -> Drawn:
        """The same with this job alone; it draws what it drew."""
        return Drawn(self.workload.only(job), self.seed, tuple(each for each in self.jobs if each.job.name == job))
