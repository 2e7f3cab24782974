"""Results as people read them: one table, on the terminal or in a self-contained HTML page with Gantt charts.

The input is what `sim run --json` prints, an object a workload, and the spans of each policy's decision log. The page
needs no network: its style and script are inside. Every name is escaped. Pure: nothing is written here.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any

import msgspec
from msgspec import Struct

from tsched.curves import Curves, figure
from tsched.model import Group
from tsched.perfetto import Entry, Span, lanes, spans, waiting_steps

MAX_SPANS = 20_000
NOTHING = "–"
Summary = Mapping[str, Any]


class Chart(Struct, frozen=True):
    """One policy's Gantt chart: its groups from top to bottom, and what happened there; `left_out` spans do not fit."""

    title: str
    groups: tuple[str, ...]
    spans: Sequence[Span]
    left_out: int = 0


class Grid(Struct, frozen=True):
    """A table of text."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]


class Section(Struct, frozen=True):
    """One workload: its summary, its charts, remarks in plain text, and other tables and curves, if there are any."""

    summary: Summary
    charts: Sequence[Chart] = ()
    remarks: Sequence[str] = ()
    grids: Sequence[Grid] = ()
    curves: Sequence[Curves] = ()


def chart(title: str, groups: Sequence[Group], records: Iterable[Entry]) -> Chart:
    """A log as a chart, of its first `MAX_SPANS` spans."""
    found = spans(records)
    names = tuple(group.name for group in groups)
    return Chart(title, names, found[:MAX_SPANS], max(0, len(found) - MAX_SPANS))


# ------------------------------------------------------------------------------------------------------- table


def table(summary: Summary) -> tuple[list[str], list[list[str]]]:
    """Headings and rows of text: every policy, then the baselines."""
    groups = _groups(summary)
    recorded = summary.get("recorded_makespan_s") is not None
    headings = ["policy", "makespan s", "GPU-hours", *(f"duty {group}" for group in groups)]
    headings += ["wait median s", "p95 s", "max s", "switches", "over lower bound"]
    headings += ["error vs recorded"] if recorded else []
    rows = [_row(str(entry["policy"]), entry, groups, recorded) for entry in summary.get("policies", ())]
    rows += [_row(name, entry, groups, recorded) for name, entry in summary.get("baselines", {}).items()]
    return headings, rows


def facts(summary: Summary) -> list[str]:
    """What holds for all rows of the table, one sentence each."""
    said = [f"lower bound {number(summary.get('lower_bound_s'))} s"]
    if summary.get("recorded_makespan_s") is not None:
        said.append(f"recorded makespan {number(summary['recorded_makespan_s'])} s")
    seeds = summary.get("seeds")
    count = len(seeds) if isinstance(seeds, Sequence) else seeds
    if isinstance(count, int) and count > 1:
        said.append(f"means of {count} seeds ± 95 % confidence")
    return said


def number(value: object, digits: int = 1) -> str:
    """A number for people; a dash where there is none."""
    if not isinstance(value, int | float) or not math.isfinite(value):
        return NOTHING
    return f"{value:,.{digits}f}"


def percent(value: object, sign: bool = False) -> str:
    """A share for people; a dash where there is none."""
    if not isinstance(value, int | float) or not math.isfinite(value):
        return NOTHING
    return f"{value * 100:{'+' if sign else ''}.1f} %"


def _groups(summary: Summary) -> list[str]:
    entries = [*summary.get("policies", ()), *summary.get("baselines", {}).values()]
    return list(dict.fromkeys(group for entry in entries for group in entry.get("duty") or {}))


def _row(name: str, entry: Mapping[str, Any], groups: Sequence[str], recorded: bool) -> list[str]:
    duty, wait, ci = entry.get("duty") or {}, entry.get("wait_s") or {}, entry.get("ci95") or {}
    ci_duty, ci_wait = ci.get("duty") or {}, ci.get("wait_s") or {}
    switches = entry.get("switches")
    cells = [name, _with(number(entry.get("makespan_s")), number(ci.get("makespan_s")))]
    cells.append(_with(number(entry.get("gpu_hours"), 2), number(ci.get("gpu_hours"), 2)))
    cells += [_with(percent(duty.get(group)), percent(ci_duty.get(group))) for group in groups]
    cells += [_with(number(wait.get(key)), number(ci_wait.get(key))) for key in ("median", "p95", "max")]
    whole = isinstance(switches, int) or (isinstance(switches, float) and switches.is_integer())
    cells.append(_with(number(switches, 0 if whole else 1), number(ci.get("switches"))))
    cells.append(percent(entry.get("gap_to_lower_bound"), sign=True))
    return cells + ([percent(entry.get("error_vs_recorded"), sign=True)] if recorded else [])


def _with(text: str, half_width: str) -> str:
    return text if NOTHING in (text, half_width) else f"{text} ± {half_width}"


# -------------------------------------------------------------------------------------------------------- page


def page(sections: Sequence[Section], title: str = "tsched report") -> str:
    """The whole HTML document."""
    body = "\n".join(_section(index, section) for index, section in enumerate(sections))
    return (
        "<!doctype html>\n"
        f'<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>\n{_asset('report.css')}</style></head>\n"
        f"<body><h1>{html.escape(title)}</h1>\n{body}\n"
        '<div id="tip" role="tooltip" hidden></div>\n'
        f"<script>\n{_asset('report.js')}</script></body></html>\n"
    )


def _asset(name: str) -> str:
    return files("tsched").joinpath(name).read_text(encoding="utf-8")


def _section(index: int, section: Section) -> str:
    summary = section.summary
    jobs = list(dict.fromkeys(span.job for chart in section.charts for span in chart.spans))
    parts = [f"<section><h2>{html.escape(str(summary.get('workload', '')))}</h2>"]
    stated = ["; ".join(facts(summary))] if "lower_bound_s" in summary else []
    parts += [f"<p>{html.escape(text)}</p>" for text in (*stated, *section.remarks)]
    parts += [_table(grid.headings, grid.rows) for grid in section.grids]
    parts += [_table(*table(summary))] if summary.get("policies") or summary.get("baselines") else []
    parts += [_jobs(entry) for entry in summary.get("policies", ()) if entry.get("jobs")]
    if section.charts:
        parts.append(_legend(jobs))
        parts += [_chart(f"chart-{index}-{n}", index, chart, jobs) for n, chart in enumerate(section.charts)]
    parts.append('<div class="curves">' + "".join(map(figure, section.curves)) + "</div>" if section.curves else "")
    return "\n".join([*parts, "</section>"])


def _table(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = "".join(f"<th>{html.escape(text)}</th>" for text in headings)
    body = "\n".join("<tr>" + "".join(f"<td>{html.escape(text)}</td>" for text in row) + "</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>'


def _jobs(entry: Mapping[str, Any]) -> str:
    rows = [
        [name, number(job.get("finish_s")), number(job.get("slowdown_vs_dedicated"), 2), number(job.get("wait_s"))]
        for name, job in entry["jobs"].items()
    ]
    text = html.escape(f"jobs under {entry['policy']}")
    return f"<details><summary>{text}</summary>{_table(['job', 'finish s', 'slowdown', 'waited s'], rows)}</details>"


def _legend(jobs: Sequence[str]) -> str:
    chips = "".join(f'<span class="chip" data-job="{n}">{html.escape(name)}</span>' for n, name in enumerate(jobs))
    help_text = "wheel or + and −: zoom · drag or arrows: move · double click or 0: all · pale: park, restore"
    return f'<p class="legend">{chips}<span class="hint">{help_text} · grey: how many wait</span></p>'


def _chart(name: str, section: int, chart: Chart, jobs: Sequence[str]) -> str:
    total = len(chart.spans) + chart.left_out
    note = f" (the first {len(chart.spans):,} of {total:,} spans)" if chart.left_out else ""
    title = html.escape(chart.title + note)
    label = html.escape(f"Gantt chart of {chart.title}", quote=True)
    canvas = f'<canvas data-chart="{name}" data-section="{section}" tabindex="0" aria-label="{label}"></canvas>'
    data = _embedded(_data(chart, jobs))
    return f'<h3>{title}</h3>{canvas}\n<script type="application/json" id="{name}">{data}</script>'


def _data(chart: Chart, jobs: Sequence[str]) -> dict[str, Any]:
    """What the script draws: per group its turns, lanes of moves, and steps of the number of waiting requests."""
    index = {name: n for n, name in enumerate(jobs)}
    by_group: dict[str, list[Span]] = {group: [] for group in chart.groups}
    for span in chart.spans:
        by_group.setdefault(span.group, []).append(span)
    rows = [_track(group, found, index) for group, found in by_group.items()]
    ends = [span.end_us for span in chart.spans]
    starts = [span.start_us for span in chart.spans]
    return {"rows": rows, "jobs": list(jobs), "start": min(starts, default=0), "end": max(ends, default=1)}


def _track(group: str, found: Sequence[Span], index: Mapping[str, int]) -> dict[str, Any]:
    turns = [_drawn(span, index) for span in found if span.kind == "turn"]
    moves = lanes([span for span in found if span.kind not in ("turn", "wait")])
    waiting = waiting_steps([span for span in found if span.kind == "wait"])
    return {
        "group": group,
        "turns": turns,
        "moves": [[_drawn(span, index) for span in lane] for lane in moves],
        "waiting": [list(step) for step in waiting],
    }


def _drawn(span: Span, index: Mapping[str, int]) -> list[Any]:
    what = span.phase if span.kind == "turn" else f"{span.kind}, node {span.node}"
    return [span.start_us, span.end_us, index[span.job], what, span.note]


def _embedded(data: object) -> str:
    """JSON that cannot end the script element it stands in."""
    text = msgspec.json.encode(data).decode()
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
