"""The tables of a scenario file, and the values that they stand for. See `tsched.sim.toml` for how one reads.

Pydantic checks keys, types and ranges here; `tsched.sim.check` checks what the programs mean.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, model_validator

from tsched.costs import Bandwidth, FixedTable, Samples
from tsched.errors import Invalid
from tsched.faults import FaultRates
from tsched.model import Group, Job, seconds
from tsched.sim.durations import Duration, Exponential, Fixed, Lognormal, Normal, Recorded, Uniform
from tsched.sim.program import Acquire, Context, JobProgram, Run, Step, Yield
from tsched.sim.workload import Workload, WorkloadCosts

GIGABYTE = 1_000_000_000

Number = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False, strict=True)]
Count = Annotated[int, Field(ge=1, le=10_000_000, strict=True)]
Name = Annotated[str, Field(min_length=1)]
Names = Annotated[tuple[Name, ...], BeforeValidator(lambda value: (value,) if isinstance(value, str) else value)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Lognormal(_Table):
    distribution: Literal["lognormal"]
    median_s: Number
    sigma: Number

    def value(self) -> Duration:
        return Lognormal(seconds(self.median_s), self.sigma)


class _Uniform(_Table):
    distribution: Literal["uniform"]
    low_s: Number
    high_s: Number

    def value(self) -> Duration:
        return Uniform(seconds(self.low_s), seconds(self.high_s))


class _Normal(_Table):
    distribution: Literal["normal"]
    mean_s: Number
    sd_s: Number

    def value(self) -> Duration:
        return Normal(seconds(self.mean_s), seconds(self.sd_s))


class _Exponential(_Table):
    distribution: Literal["exponential"]
    mean_s: Number

    def value(self) -> Duration:
        return Exponential(seconds(self.mean_s))


_Distribution = Annotated[_Lognormal | _Uniform | _Normal | _Exponential, Field(discriminator="distribution")]


class _Acquire(_Table):
    acquire: Names
    phase: str = ""
    estimate_s: Number | None = None
    nested: Annotated[bool, Field(strict=True)] = False

    def value(self) -> Step:
        estimate = None if self.estimate_s is None else seconds(self.estimate_s)
        return Acquire(self.acquire, self.phase, estimate, self.nested)


class _Run(_Table):
    run_s: Number | None = None
    recorded_s: tuple[Number, ...] | None = None
    run: _Distribution | None = None
    kind: str = ""

    @model_validator(mode="after")
    def _one_of(self) -> _Run:
        if sum(value is not None for value in (self.run_s, self.recorded_s, self.run)) != 1:
            raise ValueError("a run has exactly one of run_s, recorded_s and run")
        return self

    def value(self) -> Step:
        if self.run_s is not None:
            return Run(Fixed(seconds(self.run_s)), self.kind)
        if self.recorded_s is not None:
            return Run(Recorded(tuple(seconds(value) for value in self.recorded_s)), self.kind)
        assert self.run is not None
        return Run(self.run.value(), self.kind)


class _Yield(_Table):
    groups: Names = Field(alias="yield")

    def value(self) -> Step:
        return Yield(self.groups)


def _kind(step: Any) -> str:
    keys = step if isinstance(step, dict) else {}
    return next((f"<{key}>" for key in ("acquire", "yield") if key in keys), "<run>")


_Step = Annotated[
    Annotated[_Acquire, Tag("<acquire>")] | Annotated[_Run, Tag("<run>")] | Annotated[_Yield, Tag("<yield>")],
    Discriminator(_kind),
]


class _Context(_Table):
    name: str = ""
    iterations: Count = 1
    steps: tuple[_Step, ...]

    def value(self) -> Context:
        return Context(tuple(step.value() for step in self.steps), self.iterations, self.name)


class _Job(_Table):
    name: Name
    owner: str = ""
    weight: Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False, strict=True)] = 1.0
    state_gb: dict[str, Number] = {}
    turn_gb: dict[str, Number] = {}
    work_s: Number | None = None
    arrival_s: Number = 0.0
    iterations: Count = 1
    steps: tuple[_Step, ...] = ()
    contexts: tuple[_Context, ...] = ()

    @model_validator(mode="after")
    def _one_of(self) -> _Job:
        if bool(self.steps) == bool(self.contexts):
            raise ValueError("a job has either steps or contexts, and at least one of them")
        return self

    def value(self) -> JobProgram:
        contexts = tuple(context.value() for context in self.contexts) or (
            Context(tuple(step.value() for step in self.steps), self.iterations),
        )
        job = Job(
            self.name,
            owner=self.owner,
            weight=self.weight,
            state_bytes=_bytes(self.state_gb),
            turn_bytes=_bytes(self.turn_gb),
            work_us=None if self.work_s is None else seconds(self.work_s),
        )
        return JobProgram(job, contexts, seconds(self.arrival_s))


class _Group(_Table):
    name: Name
    capacity_gb: Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False, strict=True)] | None = None
    nodes: Annotated[tuple[Name, ...], Field(min_length=1)] = ("0",)
    lease_ttl_s: Number | None = None
    max_hold_s: Number | None = None
    max_phase_s: Number | None = None
    suspendable: Annotated[bool, Field(strict=True)] = False
    prefetch: Annotated[bool, Field(strict=True)] = True
    move_timeout_s: Number = 300.0
    retries: Annotated[int, Field(ge=0, strict=True)] = 1

    def value(self) -> Group:
        return Group(
            self.name,
            capacity_bytes=None if self.capacity_gb is None else round(self.capacity_gb * GIGABYTE),
            nodes=self.nodes,
            lease_ttl_us=_optional(self.lease_ttl_s),
            max_hold_us=_optional(self.max_hold_s),
            max_phase_us=_optional(self.max_phase_s),
            suspendable=self.suspendable,
            prefetch=self.prefetch,
            move_timeout_us=seconds(self.move_timeout_s),
            retries=self.retries,
        )


class _Bandwidth(_Table):
    kind: Literal["bandwidth"]
    gb_per_s: Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False, strict=True)]
    latency_s: Number = 0.0

    def value(self, groups: list[str]) -> WorkloadCosts:
        return Bandwidth(max(1, round(self.gb_per_s * GIGABYTE)), seconds(self.latency_s))


class _FixedTable(_Table):
    kind: Literal["table"]
    park_s: dict[str, Number] = {}
    restore_s: dict[str, Number] = {}
    default_s: Number = 0.0

    def value(self, groups: list[str]) -> WorkloadCosts:
        _listed(self.park_s, "costs.park_s", groups)
        _listed(self.restore_s, "costs.restore_s", groups)
        park = {name: seconds(value) for name, value in self.park_s.items()}
        restore = {name: seconds(value) for name, value in self.restore_s.items()}
        return FixedTable(park, restore, seconds(self.default_s))


class _Samples(_Table):
    kind: Literal["samples"]
    park_s: dict[str, Annotated[tuple[Number, ...], Field(min_length=1)]] = {}
    restore_s: dict[str, Annotated[tuple[Number, ...], Field(min_length=1)]] = {}
    default_s: Number = 0.0
    seed: Annotated[int, Field(strict=True)] = 0

    def value(self, groups: list[str]) -> WorkloadCosts:
        _listed(self.park_s, "costs.park_s", groups)
        _listed(self.restore_s, "costs.restore_s", groups)
        park = {name: tuple(seconds(value) for value in values) for name, values in self.park_s.items()}
        restore = {name: tuple(seconds(value) for value in values) for name, values in self.restore_s.items()}
        return Samples(park, restore, seconds(self.default_s), self.seed)


_Costs = Annotated[_Bandwidth | _FixedTable | _Samples, Field(discriminator="kind")]
Rate = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False, strict=True)]


class _Faults(_Table):
    fail: Rate = 0.0
    hang: Rate = 0.0
    lie: Rate = 0.0
    late: Rate = 0.0
    lose: Rate = 0.0

    def value(self) -> FaultRates:
        return FaultRates(self.fail, self.hang, self.lie, self.late, self.lose)


class Scenario(_Table):
    """A whole file."""

    name: str = ""
    seed: Annotated[int, Field(strict=True)] = 0
    recorded_makespan_s: Number | None = None
    meta: dict[str, str] = {}
    groups: tuple[_Group, ...] = ()
    jobs: tuple[_Job, ...] = ()
    costs: _Costs | None = None
    faults: _Faults = _Faults()

    def value(self, default_name: str) -> Workload:
        """The workload; raises `Invalid` for what is wrong with its programs."""
        groups = [group.name for group in self.groups]
        return Workload(
            self.name or default_name,
            tuple(group.value() for group in self.groups),
            tuple(job.value() for job in self.jobs),
            self.costs.value(groups) if self.costs else FixedTable(),
            self.faults.value(),
            self.seed,
            _optional(self.recorded_makespan_s),
            self.meta,
        )


def _listed(table: dict[str, Any], place: str, groups: list[str]) -> None:
    for name in table:
        if name not in groups:
            raise Invalid(f"{place}: unknown group {name!r}, must be one of {', '.join(groups)}")


def _bytes(sizes: dict[str, float]) -> dict[str, int]:
    return {group: round(size * GIGABYTE) for group, size in sizes.items()}


def _optional(value: float | None) -> int | None:
    return None if value is None else seconds(value)
