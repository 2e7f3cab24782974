"""Runs that llm-d's time-slicing recorded, as workloads: any pool names, any number of jobs and pools.

Of each `acquired` event `wait_ms` is how long the client waited for the lock, and `restore_ms` how long its state took
to come back after that: the request was made both before `t`. (Recorded waits of 0 come with a restore. Read so, the
lengths of a job's phases join up smoothly; the other way they jump by one restore.) Windows and utilisation series are
left aside: they say nothing that the events do not.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec

from tsched.costs import FixedTable
from tsched.errors import Invalid
from tsched.model import SECOND_US, Group
from tsched.sim.recording import Turn, makespan_us, replay, switch_costs
from tsched.sim.workload import Workload

KINDS = ("acquired", "yielded", "checkpointing", "ckpt_done", "restoring", "restore_done")


def is_llmd(data: Any) -> bool:
    """Whether parsed JSON looks like such a recording."""
    return isinstance(data, dict) and isinstance(data.get("timeslice"), dict)


def read_llmd(path: str | Path) -> Workload:
    """The recording as an exact replay; raises `Invalid`, in one line, for whatever is wrong with it."""
    path = Path(path)
    try:
        data = msgspec.json.decode(path.read_bytes())
    except OSError as error:
        raise Invalid(f"{path}: cannot be read: {error.strerror or error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Invalid(f"{path}: not JSON: {error}") from error
    return workload(data, str(path))


def workload(data: Any, source: str) -> Workload:
    """Each job's own phase lengths, and one constant for each pool's switches, charged when the state moves out."""
    try:
        found = turns(data)
        pools = list(dict.fromkeys(pool for turn in found for pool in turn.groups))
        meta = {"source": str(data.get("source", "")), "label": str(data.get("label", ""))}
        return Workload(
            Path(source).stem,
            tuple(Group(pool) for pool in pools),
            tuple(each.program for each in replay(found)),
            FixedTable(park=switch_costs(found)),
            recorded_makespan_us=makespan_us(found),
            meta={key: value for key, value in meta.items() if value},
        )
    except Invalid as error:
        raise Invalid(f"{source}: {error}") from None


def turns(data: Any) -> list[Turn]:
    """Every turn of the recording; one that was not over when it ended is cut off there."""
    events = data["timeslice"].get("events") if is_llmd(data) else None
    if not isinstance(events, list) or not events:
        raise Invalid("timeslice.events: missing or empty, must be a list of acquired and yielded events")
    found: list[Turn] = []
    holding: dict[tuple[str, str], Turn] = {}
    freed: dict[tuple[str, str], int] = {}
    last = 0
    for index, event in sorted(enumerate(events), key=lambda pair: _time(pair[1], f"timeslice.events[{pair[0]}]")):
        place = f"timeslice.events[{index}]"
        kind = event.get("kind")
        if kind not in KINDS:
            raise Invalid(f"{place}.kind: {kind!r}, must be one of {', '.join(KINDS)}")
        if kind not in ("acquired", "yielded"):
            continue
        key = (_text(event, "job", place), _text(event, "pool", place))
        when = last = _time(event, place)
        if event["kind"] == "acquired":
            if key in holding:
                raise Invalid(f"{place}: job {key[0]!r} acquires pool {key[1]!r}, which it holds, it must yield first")
            waited = _milliseconds(event, "wait_ms", place) + _milliseconds(event, "restore_ms", place)
            asked = max(when - waited, freed.get(key, when - waited))
            holding[key] = Turn(key[0], (key[1],), asked, when, ())
        elif key not in holding:
            raise Invalid(f"{place}: job {key[0]!r} yields pool {key[1]!r} without acquire, it must acquire it first")
        else:
            found.append(holding.pop(key)._replace(yields=((when, (key[1],)),)))
            freed[key] = when
    found += [turn._replace(yields=((last, turn.groups),)) for turn in holding.values()]
    if not found:
        raise Invalid("timeslice.events: no acquired event, there must be at least one")
    return sorted(found, key=lambda turn: (turn.asked_us, turn.job, turn.groups))


def _time(event: Any, place: str) -> int:
    value = event.get("t") if isinstance(event, dict) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise Invalid(f"{place}.t: {value!r}, must be a finite number of seconds")
    return round(value * SECOND_US)


def _milliseconds(event: dict[str, Any], key: str, place: str) -> int:
    value = event.get(key, 0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise Invalid(f"{place}.{key}: {value!r}, must be a finite number of milliseconds >= 0")
    return round(value * 1000)


def _text(event: dict[str, Any], key: str, place: str) -> str:
    value = event.get(key)
    if not isinstance(value, str) or not value:
        raise Invalid(f"{place}.{key}: {value!r}, must be a name")
    return value
