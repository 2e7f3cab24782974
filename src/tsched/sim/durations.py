"""How long one run of a program takes: a constant, a named distribution, or what was recorded.

Integer microseconds go in and come out. A distribution is drawn from the `random.Random` that it is handed and from
nothing else; what is drawn below zero counts as zero, and nothing lasts longer than `MOST_US`.
"""

from __future__ import annotations

import math
from random import Random

from msgspec import Struct

MOST_US = 10**15  # 31 years
MOST_SIGMA = 10.0


class _Duration(Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    pass


class Fixed(_Duration, frozen=True):
    """Always the same."""

    us: int

    def expected_us(self) -> int:
        return self.us

    def draw(self, rng: Random, iteration: int) -> int:
        return self.us


class Lognormal(_Duration, frozen=True):
    """`median_us` times a factor whose logarithm is normal with deviation `sigma`."""

    median_us: int
    sigma: float

    def expected_us(self) -> int:
        return round(self.median_us * math.exp(self.sigma**2 / 2))

    def draw(self, rng: Random, iteration: int) -> int:
        return min(MOST_US, round(self.median_us * rng.lognormvariate(0.0, self.sigma)))


class Uniform(_Duration, frozen=True):
    low_us: int
    high_us: int

    def expected_us(self) -> int:
        return (self.low_us + self.high_us) // 2

    def draw(self, rng: Random, iteration: int) -> int:
        return round(rng.uniform(self.low_us, self.high_us))


class Normal(_Duration, frozen=True):
    mean_us: int
    sd_us: int

    def expected_us(self) -> int:
        return self.mean_us

    def draw(self, rng: Random, iteration: int) -> int:
        return min(MOST_US, max(0, round(rng.gauss(self.mean_us, self.sd_us))))


class Exponential(_Duration, frozen=True):
    mean_us: int

    def expected_us(self) -> int:
        return self.mean_us

    def draw(self, rng: Random, iteration: int) -> int:
        return min(MOST_US, round(rng.expovariate(1.0) * self.mean_us))


class Recorded(_Duration, frozen=True):
    """One value for each iteration of the program."""

    values_us: tuple[int, ...]

    def expected_us(self) -> int:
        return sum(self.values_us) // len(self.values_us)

    def draw(self, rng: Random, iteration: int) -> int:
        return self.values_us[iteration]


Duration = Fixed | Lognormal | Uniform | Normal | Exponential | Recorded


def problem(duration: Duration, iterations: int) -> str | None:
    """What is wrong with the numbers, as `value, and what would be right`; None if nothing is."""
    if isinstance(duration, Recorded):
        if len(duration.values_us) != iterations:
            return f"{len(duration.values_us)} recorded durations, must be one for each of {iterations} iterations"
        bad = [value for value in duration.values_us if not 0 <= value <= MOST_US]
        return f"duration {bad[0]} us, must be from 0 to {MOST_US}" if bad else None
    for key in duration.__struct_fields__:
        value = getattr(duration, key)
        most = MOST_SIGMA if key == "sigma" else MOST_US
        if not 0 <= value <= most:
            return f"{key} = {value}, must be a number from 0 to {most}"
    if isinstance(duration, Uniform) and duration.low_us > duration.high_us:
        return f"low_us = {duration.low_us}, must be at most high_us = {duration.high_us}"
    return None
