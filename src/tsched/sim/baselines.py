"""What sharing is compared with: every job on devices of its own, and the jobs one after another on the shared ones."""

from __future__ import annotations

from typing import Any

from tsched.model import SECOND_US
from tsched.sim.result import SECONDS_PER_HOUR, Result
from tsched.sim.simulator import simulate
from tsched.sim.workload import Drawn


class Baselines:
    """Both baselines of one draw, from each job's run alone.

    `spans` is how long each job took then, in seconds from its arrival.
    """

    def __init__(self, drawn: Drawn) -> None:
        workload = drawn.workload
        self.seed = drawn.seed
        self.lower_bound_s = drawn.lower_bound_us / SECOND_US
        self.solo: dict[str, Result] = {
            each.job.name: simulate(drawn.only(each.job.name), "fifo", keep=False).result for each in drawn.jobs
        }
        self.spans = {name: result.jobs[name].span_s for name, result in self.solo.items()}
        self._groups = {group.name: len(group.nodes) for group in workload.groups}
        starts = {each.job.name: each.arrival_us / SECOND_US for each in drawn.jobs}
        first = drawn.first_request_us / SECOND_US
        self.dedicated_s = max(starts[name] + span for name, span in self.spans.items()) - first
        self.serial_s = sum(result.makespan_s for result in self.solo.values())

    def dedicated(self) -> dict[str, Any]:
        """As many copies of the groups as jobs use, all provisioned until the last job is done."""
        copies = dict.fromkeys(self._groups, 0)
        busy = dict.fromkeys(self._groups, 0.0)
        for result in self.solo.values():
            for group, share in result.duty.items():
                if share:
                    copies[group] += 1
                    busy[group] += share * result.makespan_s
        nodes = sum(self._groups[group] * count for group, count in copies.items())
        return {
            "makespan_s": self.dedicated_s,
            "gpu_hours": nodes * self.dedicated_s / SECONDS_PER_HOUR,
            "duty": {
                group: busy[group] / (copies[group] * self.dedicated_s) if copies[group] and self.dedicated_s else 0.0
                for group in self._groups
            },
        }

    def serial(self) -> dict[str, Any]:
        """The sum of the solo runs, on one copy of the groups."""
        total = self.serial_s
        busy = {
            group: sum(result.duty[group] * result.makespan_s for result in self.solo.values())
            for group in self._groups
        }
        return {
            "makespan_s": total,
            "gpu_hours": sum(self._groups.values()) * total / SECONDS_PER_HOUR,
            "duty": {group: busy[group] / total if total else 0.0 for group in self._groups},
        }
