"""A line of jobs before one group that are all resident: what is left to see is the policy's order."""

from __future__ import annotations

from tsched.commands import Grant
from tsched.events import JobAdded, PhaseRequested, PhaseYielded
from tsched.model import Group, Job
from tsched.policies import Policy
from tsched.testing.playbook import Playbook


class Line:
    """One group, and jobs that take no room on it."""

    def __init__(self, policy: Policy) -> None:
        self.book = Playbook([Group("g", capacity_bytes=100)], policy)
        self.number = 0

    def job(self, name: str, owner: str = "", weight: float = 1.0) -> None:
        self.book.send(JobAdded(Job(name, owner, weight, {"g": 0})))

    def ask(self, job: str, estimate: int | None = None, remaining: int | None = None) -> None:
        """Another phase of the job, which is made known if it is new."""
        if job not in self.book.engine.state.jobs:
            self.job(job)
        self.number += 1
        event = PhaseRequested(job, self.number, job, ("g",), str(self.number), estimate, remaining)
        self.book.send(event)

    def turn(self, length_us: int = 10) -> str:
        """The holder, whose turn ends after so long."""
        holder = self.book.engine.state.groups["g"].holder
        assert holder is not None
        self.book.after(length_us).send(PhaseYielded(holder.id))
        return holder.job

    def turns(self, length_us: int = 10) -> str:
        """Who is served, one after another, until nobody waits."""
        served = ""
        while self.book.engine.state.groups["g"].holder is not None:
            served += self.turn(length_us)
        return served

    @property
    def granted(self) -> list[str]:
        return [each.job for _, _, commands in self.book.log for each in commands if isinstance(each, Grant)]
