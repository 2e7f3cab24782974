"""What jobs and operators tell a scheduler, besides asking for turns."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from anyio.lowlevel import cancel_shielded_checkpoint, checkpoint_if_cancelled

from tsched import events
from tsched.commands import Ignore
from tsched.driver import Driver
from tsched.errors import DuplicateJob, Invalid, TschedError, UnknownGroup, UnknownJob
from tsched.events import Event
from tsched.model import Job
from tsched.state import State


class Operations:
    """The part of `Scheduler` that has to do with jobs, nodes and repairs."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._recovered_jobs: dict[str, Job] = {}

    @property
    def jobs(self) -> Mapping[str, Job]:
        """The jobs that are registered now."""
        return MappingProxyType(self._state.jobs)

    def has_state(self, job: str) -> bool:
        """Whether anything of this job, registered or not, is or may be in memory somewhere."""
        return any(job in group.ledger.places for group in self._state.groups.values())

    async def add_job(self, job: Job) -> None:
        """Register a job. One that a restarted scheduler knows from its log is taken over, with what is new about it.

        Raises:
            DuplicateJob: it is registered already.
            UnknownGroup: it declares a size on a group that does not exist.
        """
        self._known_sizes(job)
        known = self._state.jobs.get(job.name)
        recovered = self._recovered_jobs.pop(job.name, None)
        if known is None:
            await self._tell(events.JobAdded(job))
        elif recovered is None:
            raise DuplicateJob(f"job {job.name!r} is registered already: update it, or take another name")
        elif known != job:
            await self._tell(events.JobUpdated(job))

    async def update_job(self, job: Job) -> None:
        """The job's owner, weight or sizes changed. Raises `UnknownJob`."""
        self._known_sizes(job)
        self._known_job(job.name)
        await self._tell(events.JobUpdated(job))

    async def remove_job(self, job: str) -> None:
        """The job is done: its requests are refused, its leases end, its state is dropped. Raises `UnknownJob`."""
        self._known_job(job)
        await self._tell(events.JobLeft(job))

    async def lose_job(self, job: str, reason: str = "") -> None:
        """The job's processes are gone: as `remove_job`, but not by its own wish. Raises `UnknownJob`."""
        self._known_job(job)
        await self._tell(events.JobLost(job, reason))

    async def readmit(self, job: str) -> None:
        """Lift the job's quarantine. Raises `UnknownJob`, or `Invalid` where it is not quarantined."""
        self._known_job(job)
        await self._tell(events.JobReadmitted(job))

    async def force_eviction(self, group: str, job: str) -> None:
        """You vouch that nothing of this job is left there. Raises `UnknownGroup`, `Invalid` where it has no state."""
        self._known_group(group)
        await self._tell(events.EvictionForced(group, job))

    async def node_lost(self, group: str, node: str, reason: str = "") -> None:
        """A node cannot be reached: its group takes no new turns. Raises `UnknownGroup`, `Invalid` for no such node."""
        self._known_group(group)
        await self._tell(events.NodeLost(group, node, reason))

    async def node_returned(self, group: str, node: str) -> None:
        """The node is back. Raises `UnknownGroup`, `Invalid` for a node that was not lost."""
        self._known_group(group)
        await self._tell(events.NodeReturned(group, node))

    @property
    def _state(self) -> State:
        return self._driver.engine.state

    async def _tell(self, event: Event, error: type[TschedError] = Invalid, *, durable: bool = True) -> None:
        """Feed an event of a caller, to whom it is an error if it means nothing."""
        await checkpoint_if_cancelled()
        for command in self._driver.tell(event):
            if isinstance(command, Ignore):
                raise error(command.reason)
        await cancel_shielded_checkpoint()
        if durable:
            await self._driver.written()

    def _known_sizes(self, job: Job) -> None:
        if not isinstance(job, Job):
            raise Invalid(f"a job must be a tsched.Job, not {job!r}")
        for group in (*job.state_bytes, *job.turn_bytes):
            self._known_group(group)

    def _known_job(self, job: str) -> None:
        if job not in self._state.jobs:
            raise UnknownJob(f"job {job!r} is not registered: add it first")

    def _known_group(self, group: str) -> None:
        if group not in self._state.groups:
            raise UnknownGroup(f"no group {group!r}; there are: {', '.join(sorted(self._state.groups))}")
