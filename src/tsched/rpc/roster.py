"""Which workers each job has, and what the scheduler knows of the job from them.

A job is registered with its first worker and updated with each further one: on every node the sizes of its workers
add up, and the fullest node counts. It is removed when all of its workers are done, and lost with any one of them.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from tsched.errors import Invalid
from tsched.model import Job
from tsched.rpc.session import Place, Session
from tsched.scheduler import Scheduler


class Roster:
    """The sessions by client, and their jobs."""

    def __init__(self) -> None:
        self.sessions: dict[str, Session] = {}

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
        try:
            await self._declare(scheduler, session)
        except BaseException:
            self.leave(session)
            raise

    async def resize(self, scheduler: Scheduler, session: Session, state_bytes: int) -> None:
        """What stays of the worker's state was measured anew."""
        if session.state_bytes != state_bytes:
            session.state_bytes = state_bytes
            if session.job in scheduler.jobs:
                await self._declare(scheduler, session)

    def leave(self, session: Session) -> bool:
        """Forget the worker; true where it was its job's last one."""
        if self.sessions.get(session.client) is session:
            del self.sessions[session.client]
        return not self.of(session.job)

    async def _declare(self, scheduler: Scheduler, session: Session) -> None:
        known = scheduler.jobs.get(session.job)
        job = _merged(known or Job(session.job), session, self.of(session.job))
        if known is None:
            await scheduler.add_job(job)
        elif known != job:
            await scheduler.update_job(job)


def _merged(job: Job, session: Session, workers: list[Session]) -> Job:
    state = {(worker.group, worker.client): (worker.node, worker.state_bytes) for worker in workers}
    turn = {(worker.group, worker.client): (worker.node, worker.turn_bytes) for worker in workers}
    return replace(
        job,
        owner=session.owner or job.owner,
        weight=session.weight if session.weight != 1.0 else job.weight,
        state_bytes={**job.state_bytes, **_fullest(state)},
        turn_bytes={**job.turn_bytes, **_fullest(turn)},
    )


def _fullest(sizes: Mapping[tuple[str, str], tuple[str, int | None]]) -> dict[str, int]:
    """For each group the sum on its fullest node; a group where one size is unknown is left out."""
    sums: dict[str, dict[str, int]] = {}
    unknown: dict[str, None] = {}
    for (group, _), (node, size) in sizes.items():
        if size is None:
            unknown[group] = None
        else:
            nodes = sums.setdefault(group, {})
            nodes[node] = nodes.get(node, 0) + size
    return {group: max(nodes.values()) for group, nodes in sums.items() if group not in unknown}
