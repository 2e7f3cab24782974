"""Scenarios for people: one TOML file, seconds and gigabytes, unknown keys refused.

    name = "two jobs"

    [[groups]]
    name = "trainers"
    capacity_gb = 80                    # left out where unknown: one job at a time is resident

    [costs]
    kind = "bandwidth"                  # or table: park_s = { trainers = 1.2 }; or samples
    gb_per_s = 50

    [[jobs]]
    name = "a"
    iterations = 60
    state_gb = { trainers = 27 }
    steps = [
      { acquire = "trainers", phase = "train", estimate_s = 4 },
      { run = { distribution = "lognormal", median_s = 3.8, sigma = 0.25 } },
      { yield = "trainers" },
      { run_s = 3.2 },                  # no group is held: this time needs no device
    ]

A gigabyte is 10^9 bytes. What is wrong is said in one line: file, place, value, and what would be right.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, ValidationError, model_validator

from tsched.costs import Bandwidth, FixedTable, Samples
from tsched.errors import Invalid
from tsched.faults import FaultRates
from tsched.model import Group, Job, seconds
from tsched.sim.durations import Duration, Exponential, Fixed, Lognormal, Normal, Recorded, Uniform
from tsched.sim.program import Acquire, Context, JobProgram, Run, Step, Yield
from tsched.sim.workload import Workload, WorkloadCosts

GIGABYTE = 1_000_000_000

Number = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Name = Annotated[str, Field(min_length=1)]
Names = Annotated[tuple[Name, ...], BeforeValidator(lambda value: (value,) if isinstance(value, str) else value)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=False)


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
    nested: bool = False

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
    iterations: Annotated[int, Field(ge=1)] = 1
    steps: tuple[_Step, ...]

    def value(self) -> Context:
        return Context(tuple(step.value() for step in self.steps), self.iterations, self.name)


class _Job(_Table):
    name: Name
    owner: str = ""
    weight: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    state_gb: dict[str, Number] = {}
    turn_gb: dict[str, Number] = {}
    work_s: Number | None = None
    arrival_s: Number = 0.0
    iterations: Annotated[int, Field(ge=1)] = 1
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
    capacity_gb: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    nodes: Annotated[tuple[Name, ...], Field(min_length=1)] = ("0",)
    lease_ttl_s: Number | None = None
    max_hold_s: Number | None = None
    max_phase_s: Number | None = None
    suspendable: bool = False
    prefetch: bool = True
    move_timeout_s: Number = 300.0
    retries: Annotated[int, Field(ge=0)] = 1

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
    gb_per_s: Annotated[float, Field(gt=0, allow_inf_nan=False)]
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
    seed: int = 0

    def value(self, groups: list[str]) -> WorkloadCosts:
        _listed(self.park_s, "costs.park_s", groups)
        _listed(self.restore_s, "costs.restore_s", groups)
        park = {name: tuple(seconds(value) for value in values) for name, values in self.park_s.items()}
        restore = {name: tuple(seconds(value) for value in values) for name, values in self.restore_s.items()}
        return Samples(park, restore, seconds(self.default_s), self.seed)


_Costs = Annotated[_Bandwidth | _FixedTable | _Samples, Field(discriminator="kind")]
Rate = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class _Faults(_Table):
    fail: Rate = 0.0
    hang: Rate = 0.0
    lie: Rate = 0.0
    late: Rate = 0.0
    lose: Rate = 0.0

    def value(self) -> FaultRates:
        return FaultRates(self.fail, self.hang, self.lie, self.late, self.lose)


class _Scenario(_Table):
    name: str = ""
    seed: int = 0
    recorded_makespan_s: Number | None = None
    meta: dict[str, str] = {}
    groups: tuple[_Group, ...] = ()
    jobs: tuple[_Job, ...] = ()
    costs: _Costs | None = None
    faults: _Faults = _Faults()

    def value(self, default_name: str) -> Workload:
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


def read_toml(path: str | Path) -> Workload:
    """The workload of a scenario file; raises `Invalid`, in one line, for whatever is wrong with it."""
    path = Path(path)
    try:
        data = tomllib.loads(path.read_bytes().decode())
    except OSError as error:
        raise Invalid(f"{path}: cannot be read: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Invalid(f"{path}: not TOML: {error}") from error
    return scenario(data, str(path))


def scenario(data: dict[str, Any], source: str) -> Workload:
    """The workload that the parsed TOML `data` describes; `source` names it in errors."""
    try:
        return _Scenario.model_validate(data).value(Path(source).stem)
    except ValidationError as error:
        raise Invalid(f"{source}: {_first(error)}") from None
    except Invalid as error:
        raise Invalid(f"{source}: {error}") from None


def _first(error: ValidationError) -> str:
    """The first finding as `place: value, what would be right`."""
    finding = error.errors(include_url=False)[0]
    place = _place(finding["loc"])
    value = repr(finding["input"])
    value = value if len(value) <= 60 else value[:57] + "..."
    match finding["type"]:
        case "extra_forbidden":
            return f"{place}: unknown key, with value {value}; remove it or correct its name"
        case "missing":
            return f"{place}: missing, it must be given"
        case "value_error":
            return f"{place}: {finding['msg'].removeprefix('Value error, ')}, not {value}"
        case "union_tag_invalid" | "union_tag_not_found":
            return f"{place}: {value}, {finding['msg'][0].lower()}{finding['msg'][1:]}"
        case _:
            said = finding["msg"].replace("Input should be", "must be")
            return f"{place}: {value}, {said}".replace("\n", " ")


def _place(loc: tuple[int | str, ...]) -> str:
    """`jobs[1].steps[2].run_s` from pydantic's location, without the tags of its unions."""
    place = ""
    for index, part in enumerate(loc):
        if isinstance(part, int):
            place += f"[{part}]"
        elif not part.startswith("<") and not (index and loc[index - 1] in ("run", "costs") and part in _TAGS):
            place += f".{part}" if place else part
    return place or "scenario"


_TAGS = ("lognormal", "uniform", "normal", "exponential", "bandwidth", "table", "samples")


def _listed(table: dict[str, Any], place: str, groups: list[str]) -> None:
    for name in table:
        if name not in groups:
            raise Invalid(f"{place}: unknown group {name!r}, must be one of {', '.join(groups)}")


def _bytes(sizes: dict[str, float]) -> dict[str, int]:
    return {group: round(size * GIGABYTE) for group, size in sizes.items()}


def _optional(value: float | None) -> int | None:
    return None if value is None else seconds(value)
