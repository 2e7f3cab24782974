"""Workloads as JSONL: a header line, then one line a job. For traces; people write TOML.

What is written is read back equal. A file of a newer version is refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from tsched.errors import Invalid
from tsched.faults import FaultRates
from tsched.model import Group
from tsched.sim.program import JobProgram
from tsched.sim.workload import Workload, WorkloadCosts

T = TypeVar("T")
FORMAT = "tsched-workload"
VERSION = 1


class Header(Struct, frozen=True, forbid_unknown_fields=True):
    """Everything but the jobs."""

    format: str
    version: int
    name: str
    groups: tuple[Group, ...]
    costs: WorkloadCosts
    faults: FaultRates
    seed: int
    recorded_makespan_us: int | None
    meta: Mapping[str, str]


class _Version(Struct):
    format: str = ""
    version: int = 0


def write_jsonl(workload: Workload, path: str | Path) -> None:
    """Write `workload`; an existing file is replaced."""
    rest = {key: getattr(workload, key) for key in workload.__struct_fields__ if key != "jobs"}
    header = Header(FORMAT, VERSION, **rest)
    lines = [msgspec.json.encode(line) for line in (header, *workload.jobs)]
    Path(path).write_bytes(b"\n".join(lines) + b"\n")


def read_jsonl(path: str | Path) -> Workload:
    """Read what `write_jsonl` wrote; raises `Invalid`, in one line, for whatever is wrong with it."""
    path = Path(path)
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise Invalid(f"{path}: cannot be read: {error.strerror or error}") from error
    _check_version(path, lines[0] if lines else b"")
    header = _line(path, 1, lines[0], Header)
    jobs = tuple(_line(path, number, line, JobProgram) for number, line in enumerate(lines[1:], 2))
    rest = {key: getattr(header, key) for key in header.__struct_fields__ if key not in ("format", "version")}
    try:
        return Workload(jobs=jobs, **rest)
    except Invalid as error:
        raise Invalid(f"{path}: {error}") from None


def _check_version(path: Path, line: bytes) -> None:
    found = _line(path, 1, line, _Version)
    if found.format != FORMAT:
        raise Invalid(f"{path}: line 1: format {found.format!r}, must be {FORMAT!r}")
    if found.version > VERSION:
        raise Invalid(f"{path}: line 1: version {found.version}, this release reads up to {VERSION}: upgrade tsched")


def _line(path: Path, number: int, line: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(line, type=kind)
    except (msgspec.DecodeError, Invalid, UnicodeDecodeError) as error:
        value = line[:40].decode(errors="replace")
        raise Invalid(f"{path}: line {number}: {value!r}..., {error}") from None
