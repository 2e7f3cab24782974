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
from typing import Any

from pydantic import ValidationError

from tsched.errors import Invalid
from tsched.sim.scenario import Scenario
from tsched.sim.workload import Workload

_TAGS = ("lognormal", "uniform", "normal", "exponential", "bandwidth", "table", "samples")


def read_toml(path: str | Path) -> Workload:
    """The workload of a scenario file; raises `Invalid`, in one line, for whatever is wrong with it."""
    path = Path(path)
    try:
        data = tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise Invalid(f"{path}: cannot be read: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Invalid(f"{path}: not TOML: {error}") from error
    except RecursionError:
        raise Invalid(f"{path}: not TOML of a scenario: it is nested too deeply") from None
    return scenario(data, str(path))


def scenario(data: dict[str, Any], source: str) -> Workload:
    """The workload that the parsed TOML `data` describes; `source` names it in errors."""
    try:
        return Scenario.model_validate(data).value(Path(source).stem)
    except ValidationError as error:
        raise Invalid(f"{source}: {_first(error)}") from None
    except Invalid as error:
        raise Invalid(f"{source}: {error}") from None


def _first(error: ValidationError) -> str:
    """The first finding as `place: value, what would be right`; an unknown key explains what else is found."""
    findings = error.errors(include_url=False)
    finding = next((each for each in findings if each["type"] == "extra_forbidden"), findings[0])
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
