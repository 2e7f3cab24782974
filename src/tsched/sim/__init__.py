"""Simulation: workloads as programs, the real engine in virtual time, and what came of it.

    workload = load_workload("simulations/case_study_exclusive.toml")
    header, records, result = simulate(workload, "shortest_phase_first", seed=1)

`tsched.sim.load` reads every format, `tsched.sim.summary` compares policies. Nothing here waits, looks at a clock, or
decides who is next: that is the engine's.
"""

from __future__ import annotations

from tsched.sim.durations import Exponential, Fixed, Lognormal, Normal, Recorded, Uniform
from tsched.sim.program import Acquire, Context, JobProgram, Run, Yield
from tsched.sim.result import Result
from tsched.sim.simulator import Simulation, simulate
from tsched.sim.workload import Drawn, Workload

__all__ = [
    "Acquire",
    "Context",
    "Drawn",
    "Exponential",
    "Fixed",
    "JobProgram",
    "Lognormal",
    "Normal",
    "Recorded",
    "Result",
    "Run",
    "Simulation",
    "Uniform",
    "Workload",
    "Yield",
    "simulate",
]
