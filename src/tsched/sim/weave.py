"""Weave's published phase lengths as scenarios: two to five jobs that alternate between a rollout and a training pool.

Every configuration (`7B_8k`: model size, response length) has a rollout and a training length, and every model size
the time that a switch takes with its state warm in host memory; sizes that were not measured take the nearest below.
`throughput_gain` is how many jobs' worth of solo work the shared pools do: Weave published 1.82 to 1.99.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from tsched.costs import FixedTable
from tsched.errors import Invalid
from tsched.model import Group, Job, seconds
from tsched.sim.baselines import Baselines
from tsched.sim.durations import Fixed, Lognormal
from tsched.sim.program import Acquire, Context, JobProgram, Run, Step, Yield
from tsched.sim.result import Result
from tsched.sim.workload import Workload

ROLLOUT, TRAINING = "rollout", "training"
SOLO_S = 7200.0
MIXES: Mapping[str, tuple[str, ...]] = {
    "weave_2": ("7B_4k", "7B_4k"),
    "weave_3": ("7B_8k", "14B_4k", "32B_4k"),
    "weave_4": ("7B_4k", "14B_4k", "14B_8k", "32B_4k"),
    "weave_5": ("7B_4k", "7B_8k", "14B_4k", "14B_8k", "32B_4k"),
}


class Profile(Struct, frozen=True):
    """The file's part that is used: seconds per iteration by configuration, and seconds per switch by model size."""

    disagg: Mapping[str, tuple[float, float]]
    switch_s: Mapping[str, Mapping[str, float]]


def is_weave(data: Any) -> bool:
    """Whether parsed JSON looks like such a profile."""
    return isinstance(data, dict) and "disagg" in data and "switch_s" in data


def read_profile(path: str | Path) -> Profile:
    """The profile at `path`; raises `Invalid`, in one line, for whatever is wrong with it."""
    try:
        profile = msgspec.json.decode(Path(path).read_bytes(), type=Profile)
    except OSError as error:
        raise Invalid(f"{path}: cannot be read: {error.strerror or error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Invalid(f"{path}: {error}") from error
    for name, lengths in profile.disagg.items():
        if any(not math.isfinite(length) or length <= 0 for length in lengths):
            raise Invalid(f"{path}: disagg.{name}: {lengths}, must be two numbers of seconds > 0")
    return profile


def weave(
    profile: Profile, configurations: Sequence[str], name: str = "weave", solo_s: float = SOLO_S, sigma: float = 0.0
) -> Workload:
    """These configurations as jobs on two pools, one resident at a time.

    Args:
        profile: what was measured.
        configurations: names of `profile.disagg`, one a job; one may come twice.
        name: of the workload.
        solo_s: every job has as many iterations as it would do in so many seconds alone.
        sigma: lengths vary by a lognormal factor of this deviation.
    """
    for configuration in configurations:
        if configuration not in profile.disagg:
            raise Invalid(
                f"{name}: unknown configuration {configuration!r}, one of {', '.join(profile.disagg)} is right"
            )
    jobs = tuple(_job(profile, each, index, solo_s, sigma) for index, each in enumerate(configurations))
    sizes = [_size(profile, configuration) for configuration in configurations]
    warm = {
        ROLLOUT: max(profile.switch_s[size]["warm_infer"] for size in sizes),
        TRAINING: max(profile.switch_s[size]["warm_train"] for size in sizes),
    }
    costs = FixedTable(park={group: seconds(cost) for group, cost in warm.items()})
    return Workload(name, (Group(ROLLOUT), Group(TRAINING)), jobs, costs)


def throughput_gain(result: Result, baselines: Baselines) -> float:
    """Work done per second, in units of one job that runs alone on both pools: serial time over makespan."""
    return baselines.serial_s / result.makespan_s


def _job(profile: Profile, configuration: str, index: int, solo_s: float, sigma: float) -> JobProgram:
    lengths = profile.disagg[configuration]
    iterations = max(1, round(solo_s / sum(lengths)))
    steps: list[Step] = []
    for group, phase, length in zip((ROLLOUT, TRAINING), ("generate", "train"), lengths, strict=True):
        us = seconds(length)
        steps += [Acquire((group,), phase, us), Run(Lognormal(us, sigma) if sigma else Fixed(us)), Yield((group,))]
    return JobProgram(Job(f"{configuration}-{index + 1}"), (Context(tuple(steps), iterations),))


def _size(profile: Profile, configuration: str) -> str:
    """The measured model size for a configuration: its own, or the nearest below, or the smallest."""
    own = _billions(configuration)
    known = sorted(profile.switch_s, key=_billions)
    return next((size for size in reversed(known) if _billions(size) <= own), known[0])


def _billions(name: str) -> float:
    try:
        return float(name.partition("B")[0])
    except ValueError:
        raise Invalid(f"{name!r} must begin with a model size such as 7B") from None
