"""The table and the HTML page: complete, escaped, and alone in the world."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from typing import Any

import pytest

from tsched import report
from tsched.commands import Park
from tsched.curves import Curves
from tsched.events import Woke
from tsched.journal import Record
from tsched.model import Group
from tsched.perfetto import Span

EVIL = "</script><script>alert('x')</script>&\"'"


def summary(**changes: Any) -> dict[str, Any]:
    fifo = {
        "policy": "fifo",
        "makespan_s": 1234.56,
        "gpu_hours": 0.5,
        "duty": {"train": 0.75},
        "wait_s": {"median": 1.0, "p95": 2.0, "max": 3.0},
        "switches": 4,
        "switch_s": 5.0,
        "gap_to_lower_bound": 0.1,
        "error_vs_recorded": -0.002,
        "jobs": {"a": {"finish_s": 10.0, "slowdown_vs_dedicated": 1.5, "wait_s": 3.0}},
    }
    serial = {"makespan_s": 2000.0, "gpu_hours": 1.0, "duty": {"train": 0.5}}
    whole = {"workload": "w", "seeds": 1, "lower_bound_s": 1000.0, "recorded_makespan_s": 1230.0}
    return {**whole, "baselines": {"serial": serial}, "policies": [fifo], **changes}


def section(**changes: Any) -> report.Section:
    found = [
        Span("turn", "train", "a", 0, 10, "step"),
        Span("wait", "train", "b", 2, 10),
        Span("park", "train", "a", 10, 12),
    ]
    return report.Section(summary(**changes), [report.Chart("fifo", ("train",), found)])


class Collector(HTMLParser):
    """The tags, their attributes, and the text of embedded data."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.embedded: list[str] = []
        self._in_data = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._in_data = tag == "script" and ("type", "application/json") in attrs

    def handle_data(self, data: str) -> None:
        if self._in_data:
            self.embedded.append(data)
            self._in_data = False


def test_the_table_has_a_row_for_each_policy_and_baseline() -> None:
    headings, rows = report.table(summary())
    assert [row[0] for row in rows] == ["fifo", "serial"]
    assert dict(zip(headings, rows[0], strict=True)) == {
        "policy": "fifo",
        "makespan s": "1,234.6",
        "GPU-hours": "0.50",
        "duty train": "75.0 %",
        "wait median s": "1.0",
        "p95 s": "2.0",
        "max s": "3.0",
        "switches": "4",
        "over lower bound": "+10.0 %",
        "error vs recorded": "-0.2 %",
    }


def test_what_a_baseline_does_not_have_is_a_dash() -> None:
    assert report.table(summary())[1][1][4:] == [report.NOTHING] * 6


def test_the_error_column_is_left_out_where_nothing_was_recorded() -> None:
    headings, rows = report.table(summary(recorded_makespan_s=None))
    assert "error vs recorded" not in headings
    assert len(rows[0]) == len(headings)


def test_confidence_intervals_stand_beside_the_means() -> None:
    entry = {**summary()["policies"][0], "ci95": {"makespan_s": 12.0, "duty": {"train": 0.01}}}
    row = report.table(summary(policies=[entry], seeds=10))[1][0]
    assert row[1] == "1,234.6 ± 12.0"
    assert row[3] == "75.0 % ± 1.0 %"
    assert "means of 10 seeds" in "; ".join(report.facts(summary(seeds=10)))


@pytest.mark.parametrize("value", [None, float("nan"), float("inf"), "text"])
def test_no_number_is_a_dash(value: object) -> None:
    assert report.number(value) == report.percent(value) == report.NOTHING


def test_the_page_is_well_formed_and_loads_nothing() -> None:
    text = report.page([section()])
    found = Collector(text)
    assert "src=" not in text
    assert not re.search(r"https?://|@import|url\(", text)
    assert not [tag for tag, attributes in found.tags if tag == "link" or "src" in attributes or "href" in attributes]
    assert "prefers-color-scheme: dark" in text


def test_the_chart_carries_its_spans() -> None:
    (data,) = (json.loads(text) for text in Collector(report.page([section()])).embedded)
    (row,) = data["rows"]
    assert row["turns"] == [[0, 10, 0, "step", ""]]
    assert row["moves"] == [[[10, 12, 0, "park, node ", ""]]]
    assert row["waiting"] == [[2, 1], [10, 0]]
    assert (data["start"], data["end"], data["jobs"]) == (0, 12, ["a", "b"])


def test_hostile_names_stay_text() -> None:
    chart = report.Chart(EVIL, (EVIL,), [Span("turn", EVIL, EVIL, 0, 10, EVIL, note=EVIL)])
    policy = {**summary()["policies"][0], "policy": EVIL, "duty": {EVIL: 1.0}, "jobs": {EVIL: {}}}
    text = report.page([report.Section(summary(workload=EVIL, policies=[policy]), [chart], [EVIL])], EVIL)
    assert "<script>alert" not in text
    found = Collector(text)
    assert [tag for tag, _ in found.tags].count("script") == 2
    assert json.loads(found.embedded[0])["rows"][0]["turns"][0][3] == EVIL


def test_a_huge_chart_is_cut_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "MAX_SPANS", 3)
    moves = Park(1, "train", "a", 1, ("0", "1", "2", "3", "4"), 100)
    chart = report.chart("fifo", [Group("train")], [Record(0, 0, Woke(), (moves,))])
    assert len(chart.spans) == 3
    assert "the first 3 of 5 spans" in report.page([report.Section(summary(), [chart])])


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed: it would run the page's script")
def test_the_script_draws_without_an_error() -> None:
    """Runs the page's script against the few parts of a browser that it uses, and counts what it painted."""
    text = report.page([section()])
    (data,) = Collector(text).embedded
    script = re.findall(r"<script>\n(.*?)</script>", text, re.S)[0]
    outcome = subprocess.run(
        ["node", "-e", BROWSER % (json.dumps(data), script)], capture_output=True, text=True, timeout=60, check=False
    )
    assert outcome.stderr == ""
    painted = json.loads(outcome.stdout)
    assert painted["rects"] >= 4
    assert painted["handlers"] == [
        "dblclick",
        "keydown",
        "pointerdown",
        "pointerleave",
        "pointermove",
        "pointerup",
        "wheel",
    ]
    assert "a · step on train" in painted["tip"]


BROWSER = """
const seen = { rects: 0 }, on = {};
const fill = () => { seen.rects += 1; };
const pen = new Proxy({}, { get: (t, k) => k === "fillRect" ? fill : () => 0, set: () => true });
const canvas = { dataset: { chart: "c", section: "0" }, clientWidth: 800, style: {}, getContext: () => pen,
  addEventListener: (name, f) => { on[name] = f; }, setPointerCapture() {} };
const bubble = { style: {}, hidden: true, offsetWidth: 10, textContent: "" };
globalThis.document = { documentElement: {}, getElementById: (id) => id === "tip" ? bubble : { textContent: %s },
  querySelectorAll: (what) => what.startsWith("canvas") ? [canvas] : [] };
globalThis.getComputedStyle = () => ({ getPropertyValue: () => "#000" });
globalThis.window = { addEventListener() {}, matchMedia: () => ({ addEventListener() {} }), innerWidth: 900 };
%s
on.wheel({ preventDefault() {}, deltaX: 0, deltaY: -1, offsetX: 300 });
on.wheel({ preventDefault() {}, deltaX: 5, deltaY: 0, offsetX: 300 });
for (const key of ["+", "-", "ArrowLeft", "ArrowRight", "0"]) on.keydown({ preventDefault() {}, key });
on.pointerdown({ clientX: 5 }); on.pointermove({ clientX: 9 }); on.pointerup({}); on.dblclick({});
on.pointermove({ offsetX: 150, offsetY: 30, clientX: 150, clientY: 30 });
console.log(JSON.stringify({ rects: seen.rects, handlers: Object.keys(on).sort(), tip: bubble.textContent }));
"""


def test_grids_and_curves_stand_beside_the_summary() -> None:
    grid = report.Grid(("devices", "run time"), (("6", EVIL),))
    curves = Curves("reward", {"job <a>": [0.1, 0.9]})
    whole = report.page([report.Section(summary(), grids=(grid,), curves=(curves,))])
    assert "<th>run time</th>" in whole
    assert EVIL not in whole
    assert "<polyline" in whole
    assert "job &lt;a&gt;" in whole
