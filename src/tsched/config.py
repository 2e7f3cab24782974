"""How configuration is read: one TOML file, over it the environment, over that flags; all keys are known.

What the keys are is said by pydantic models that are made of `Section`; nothing here knows any of them.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from tsched.errors import Invalid

PREFIX = "TSCHED_"
FILE_VARIABLE = "TSCHED_CONFIG"
UNITS = {"": 1, "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
UNITS |= {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")


class Section(BaseModel):
    """A part of the file; a key that is not known is a mistake."""

    model_config = ConfigDict(extra="forbid", frozen=True)


S = TypeVar("S", bound=Section)


def size_bytes(value: object) -> object:
    """A size as people write it, "80GiB" or a number of bytes; what it cannot read is left for pydantic to refuse."""
    if not isinstance(value, str):
        return value
    found = _SIZE.fullmatch(value)
    if found is None or found[2] not in UNITS:
        raise ValueError(f"write a number of bytes, or one with a unit of {', '.join(filter(None, UNITS))}")
    return round(float(found[1]) * UNITS[found[2]])


Size = Annotated[int, BeforeValidator(size_bytes)]


def load(model: type[S], file: Path | None, environment: Mapping[str, str], flags: Mapping[str, Any]) -> S:
    """The configuration from all sources.

    Args:
        file: where there is none, the environment may name one, as TSCHED_CONFIG.
        environment: TSCHED_SERVER__LISTEN is the key `listen` of section `[server]`.
        flags: by section and key; those that are None were not given.

    Raises:
        Invalid: a source cannot be read, or has a key or a value that cannot be; the text names both.
    """
    if file is None and environment.get(FILE_VARIABLE):
        file = Path(environment[FILE_VARIABLE])
    values = {} if file is None else read(file)
    overlay(values, from_environment(environment))
    overlay(values, given(flags))
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise Invalid(f"{file or 'configuration'}: {complaint(error)}") from error


def read(file: Path) -> dict[str, Any]:
    """The file's content, unchecked."""
    try:
        return tomllib.loads(file.read_text("utf-8-sig"))
    except OSError as error:
        raise Invalid(f"{file}: cannot be read: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Invalid(f"{file}: not TOML: {error}") from error


def from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    """What TSCHED_SECTION__KEY variables say; those without a section are other programs' business."""
    values: dict[str, Any] = {}
    for name, value in sorted(environment.items()):
        section, found, key = name.removeprefix(PREFIX).lower().partition("__")
        if name.startswith(PREFIX) and found:
            overlay(values, {section: {key: value}})
    return values


def given(flags: Mapping[str, Any]) -> dict[str, Any]:
    """The flags that are not None."""
    found: dict[str, Any] = {}
    for key, value in flags.items():
        if isinstance(value, Mapping):
            found[key] = given(value)
        elif value is not None:
            found[key] = value
    return found


def overlay(values: dict[str, Any], others: Mapping[str, Any]) -> None:
    """Put `others` over `values`, section by section."""
    for key, value in others.items():
        if isinstance(value, Mapping) and isinstance(values.get(key), dict):
            overlay(values[key], value)
        else:
            values[key] = value


def complaint(error: ValidationError) -> str:
    """The first thing that is wrong, and where."""
    first = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    text = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        text = "is not a known key"
    elif first["type"] != "value_error":
        text += f" (it is {first['input']!r})"
    return f"{where}: {text}" if where else text
