"""The table of the demo, from decision logs: three jobs on devices of their own, one after another, and in turns.

Pure: records in, figures out. Every run counts from its first request to its last yield, so that starting Python and
importing torch are part of none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from tsched.journal import Record
from tsched.model import SECOND_US, Group
from tsched.report import NOTHING, number, percent
from tsched.sim.result import SECONDS_PER_HOUR, Result
from tsched.sim.tally import Tally, tally

HEADINGS = ("", "devices", "run time s", "device-hours", "trainer duty", "wait median s", "switch median s")


@dataclass(frozen=True, slots=True)
class Row:
    """One way to run the jobs; waits and switches are None where there are none."""

    name: str
    devices: int
    run_s: float
    trainer_duty: float
    wait_median_s: float | None = None
    switch_median_s: float | None = None

    @property
    def device_hours(self) -> float:
        return self.devices * self.run_s / SECONDS_PER_HOUR

    def cells(self) -> list[str]:
        return [
            self.name,
            str(self.devices),
            number(self.run_s),
            number(self.device_hours, 3),
            percent(self.trainer_duty),
            seconds_text(self.wait_median_s),
            seconds_text(self.switch_median_s),
        ]


@dataclass(frozen=True, slots=True)
class Measured:
    """What one run's log amounts to, in seconds."""

    run_s: float
    trainer_s: float
    held_s: float
    waits_s: Sequence[float]
    switches_s: Sequence[float]
    spans_s: Mapping[str, float]


def measured(groups: Sequence[Group], records: Sequence[Record], trainers: str) -> Measured:
    """The figures of one run; a job's span is from the first request of the run to the job's last yield."""
    total = tally(groups, records)
    start = total.first_us or 0
    return Measured(
        run_s=(total.last_us - start) / SECOND_US,
        trainer_s=total.groups[trainers].busy_us / SECOND_US,
        held_s=sum(group.busy_us for group in total.groups.values()) / SECOND_US,
        waits_s=[wait / SECOND_US for job in total.jobs.values() for wait in job.waits_us],
        switches_s=_switches_s(total),
        spans_s={name: (job.last_yield_us - start) / SECOND_US for name, job in total.jobs.items()},
    )


def rows(solos: Mapping[str, Measured], shared: Measured, predicted: Result, trainers: str) -> list[Row]:
    """The four lines of the table: what the solo runs say of the first two, the shared run, and its prediction."""
    longest = max(each.run_s for each in solos.values())
    total = sum(each.run_s for each in solos.values())
    busy = sum(each.trainer_s for each in solos.values())
    return [
        Row("dedicated, all at once", 2 * len(solos), longest, busy / (len(solos) * longest)),
        Row("shared, one after another", 2, total, busy / total),
        Row(
            "time-sliced",
            2,
            shared.run_s,
            shared.trainer_s / shared.run_s,
            middle(shared.waits_s),
            middle(shared.switches_s),
        ),
        Row(
            "time-sliced, predicted",
            2,
            predicted.makespan_s,
            predicted.duty[trainers],
            predicted.wait_s.median,
            predicted.switch_median_s if predicted.switches else None,
        ),
    ]


def remarks(solos: Mapping[str, Measured], shared: Measured, predicted: Result) -> list[str]:
    """What the table leaves to the reader, said."""
    serial = sum(each.run_s for each in solos.values())
    slowdowns = ", ".join(f"{name} {shared.spans_s[name] / each.run_s:.2f}" for name, each in solos.items())
    gap = shared.run_s / predicted.lower_bound_s - 1
    error = predicted.makespan_s / shared.run_s - 1
    drift = sum(each.held_s for each in solos.values()) / shared.held_s - 1
    return [
        f"time-sliced over one after another: {shared.run_s / serial:.3f}; "
        f"{percent(gap, sign=True)} over what no schedule can beat ({number(predicted.lower_bound_s)} s)",
        f"slowdown of each job against its solo run: {slowdowns}",
        f"prediction from the solo runs: {percent(error, sign=True)} of the measured run time; "
        f"the same phases took {percent(drift, sign=True)} alone, which no scheduler can foresee",
        f"{len(shared.switches_s)} switches; {sum(length > 0 for length in shared.switches_s)} of them were waited for",
    ]


def middle(values: Sequence[float]) -> float | None:
    return median(values) if values else None


def seconds_text(value: float | None) -> str:
    return NOTHING if value is None else number(value, 3)


def _switches_s(total: Tally) -> list[float]:
    return [length / SECOND_US for group in total.groups.values() for length in group.switched_us]
