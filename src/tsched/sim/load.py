"""Any file that describes a workload, told apart by its content.

A scenario (TOML), a trace of programs (JSONL), a decision log of ours (JSON lines or SQLite), or a run that llm-d
recorded.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from tsched.errors import Invalid
from tsched.journal import FORMAT as LOG_FORMAT
from tsched.journal import read_log
from tsched.journal.sqlite import MAGIC
from tsched.sim import jsonl, llmd, replay, toml
from tsched.sim.fit import SCENARIOS, Fitted, fit
from tsched.sim.workload import Workload


def load_workload(path: str | Path) -> Workload:
    """The workload in the file; recordings become exact replays. Raises `Invalid`, in one line, for what is wrong."""
    kind = _kind(Path(path))
    if kind == "log":
        return replay.read_replay(path)
    if kind == "workload":
        return jsonl.read_jsonl(path)
    return llmd.read_llmd(path) if kind == "llmd" else toml.read_toml(path)


def load_fit(path: str | Path, share: float, scenarios: int = SCENARIOS) -> Fitted:
    """A recording of which the first `share` is known and the rest predicted; raises `Invalid` as `load_workload`."""
    kind = _kind(Path(path))
    if kind == "log":
        turns = replay.turns(read_log(path)[1])
    elif kind == "llmd":
        turns = llmd.turns(msgspec.json.decode(Path(path).read_bytes()))
    else:
        raise Invalid(f"{path}: a scenario has nothing to learn from, fit takes a decision log or a recorded run")
    exact = load_workload(path)
    try:
        return fit(exact, turns, share, scenarios)
    except Invalid as error:
        raise Invalid(f"{path}: {error}") from None


def _kind(path: Path) -> str:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise Invalid(f"{path}: cannot be read: {error.strerror or error}, the path of a file would be right") from None
    if raw.startswith(MAGIC):
        return "log"
    if not raw.lstrip().startswith(b"{"):
        return "toml"
    for text in (raw.lstrip().split(b"\n", 1)[0], raw):
        try:
            found = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        if llmd.is_llmd(found):
            return "llmd"
        if isinstance(found, dict) and found.get("format") in (LOG_FORMAT, jsonl.FORMAT):
            return "log" if found["format"] == LOG_FORMAT else "workload"
    raise Invalid(
        f"{path}: is JSON of an unknown sort, a decision log or a workload says its format in the first line,"
        " a recorded run has the key 'timeslice'"
    )
