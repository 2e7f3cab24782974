"""What a job would do: steps of acquire, run and yield, repeated.

A job has one or more *contexts* (its trainer worker, its sampler worker), each a client of the scheduler with a program
of its own. A run between an acquire and its yield is device work; a run outside is not (rewards, data).
Values only; `tsched.sim.check` says what is wrong with them, `tsched.sim.draw` resolves them.
"""

from __future__ import annotations

from msgspec import Struct

from tsched.model import Job
from tsched.sim.durations import Duration


class _Step(Struct, frozen=True, tag=True, forbid_unknown_fields=True, omit_defaults=True):
    pass


class Acquire(_Step, frozen=True):
    """Ask for all of `groups` at once, and wait. `nested` says that something is held meanwhile."""

    groups: tuple[str, ...]
    phase: str = ""
    estimate_us: int | None = None
    nested: bool = False


class Run(_Step, frozen=True):
    """Let time pass. `kind` names runs of one sort, for the importers that learn lengths."""

    duration: Duration
    kind: str = ""


class Yield(_Step, frozen=True):
    """Give back `groups`, or all that is held when empty."""

    groups: tuple[str, ...] = ()


Step = Acquire | Run | Yield


class Context(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One client's program: its steps, `iterations` times. Nothing is held from one iteration to the next."""

    steps: tuple[Step, ...]
    iterations: int = 1
    name: str = ""


class JobProgram(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A job, when it arrives, and what its contexts do from then on. It leaves when all of them have ended."""

    job: Job
    contexts: tuple[Context, ...]
    arrival_us: int = 0

    def client(self, context: Context) -> str:
        """The client name under which a context makes its requests."""
        return f"{self.job.name}/{context.name}" if context.name else self.job.name
