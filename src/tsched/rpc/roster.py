"""Which workers each job has, and what the scheduler knows of the job from them.

A job is registered with its first worker and updated with each further one: on every node the sizes of its workers
add up, and the fullest node counts. It is removed when all of its workers are done, and lost with any one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from tsched.errors import Invalid
from tsched.model import Job
from tsched.rpc.limits import check_size
from tsched.rpc.session import Place, Session
from tsched.scheduler import Scheduler


class Roster:
    """The sessions by client, and their jobs."""

    def __init__(self) -> None:
        self.sessions: dict[str, Session] = {}

    def all(self) -> list[Session]:
        return list(self.sessions.values())

    def of(self, job: str) -> list[Session]:
        return [session for session in self.sessions.values() if session.job == job]

    def at(self, place: Place) -> list[Session]:
        return [session for session in self.sessions.values() if session.place == place]

    async def join(self, scheduler: Scheduler, session: Session) -> None:
        """Take a new worker in; raises what `add_job` and `update_job` raise, and `Invalid` for another owner's job."""
        known = scheduler.jobs.get(session.job)
        if known is not None and session.owner and known.owner and session.owner != known.owner:
            raise Invalid(f"job {session.job!r} belongs to owner {known.owner!r}, not to {session.owner!r}")
        self.sessions[session.client] = session  # before anything is waited for, so that others count it too
        await self._declare(scheduler, session)

    async def resize(self, scheduler: Scheduler, session: Session, state_bytes: int | None) -> None:
        """What stays of the worker's state was measured anew, or could not be; raises `Invalid` for what is no size."""
        if state_bytes is not None:
            check_size("state_bytes", state_bytes)
        if session.state_bytes != state_bytes or session.unmeasured != (state_bytes is None):
            session.state_bytes, session.unmeasured = state_bytes, state_bytes is None
            if session.job in scheduler.jobs:
                await self._declare(scheduler, session)

    def leave(self, session: Session) -> None:
        """Forget the worker."""
        if self.sessions.get(session.client) is session:
            del self.sessions[session.client]

    async def _declare(self, scheduler: Scheduler, session: Session) -> None:
        known = scheduler.jobs.get(session.job)
        job = _merged(known or Job(session.job), session, self.of(session.job))
        if known is None:
            await scheduler.add_job(job)
        elif known != job:
            await scheduler.update_job(job)


def _merged(job: Job, session: Session, workers: list[Session]) -> Job:
    """The job as its workers say; where none of them names a size, what is known of it already stays."""
    named = {worker.group for worker in workers if worker.state_bytes is not None or worker.unmeasured}
    state = [(worker.group, worker.node, worker.state_bytes) for worker in workers if worker.group in named]
    named = {worker.group for worker in workers if worker.turn_bytes is not None}  # where it is not, it is nothing
    turn = [(worker.group, worker.node, worker.turn_bytes or 0) for worker in workers if worker.group in named]
    return replace(
        job,
        owner=session.owner or job.owner,
        weight=session.weight if session.weight != 1.0 else job.weight,
        state_bytes=_known({**job.state_bytes, **_fullest(state)}),
        turn_bytes=_known({**job.turn_bytes, **_fullest(turn)}),
        attended=job.attended or any(worker.group for worker in workers),
    )


def _fullest(sizes: Iterable[tuple[str, str, int | None]]) -> dict[str, int | None]:
    """For each group the sum on its fullest node; None where a size is unknown."""
    sums: dict[str, dict[str, int]] = {}
    unknown: set[str] = set()
    for group, node, size in sizes:
        nodes = sums.setdefault(group, {})
        nodes[node] = nodes.get(node, 0) + (size or 0)
        if size is None:
            unknown.add(group)
    return {group: None if group in unknown else max(nodes.values()) for group, nodes in sums.items()}


def _known(sizes: Mapping[str, int | None]) -> dict[str, int]:
    return {group: size for group, size in sizes.items() if size is not None}
