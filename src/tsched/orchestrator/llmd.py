"""llm-d's TimeSliceOrchestratorService over our scheduler.

Its clients name a job and a group, and no more: no request id, no heartbeat, no sizes. A job that is not known is
registered when it first asks. A lease ends with Yield, after the group's longest hold, or when the job is lost; a
client that cancels, breaks off or passes its deadline leaves the line at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, cast

import grpc

from tsched.errors import DuplicateJob, LeaseLost, TschedError, UnknownGroup
from tsched.lease import Lease
from tsched.llmd import orchestrator_pb2 as pb
from tsched.model import SECOND_US, Job
from tsched.orchestrator.access import Caller, Context, Refusal
from tsched.orchestrator.guard import Guard, Unary
from tsched.orchestrator.line import CLIENT, Line, Turn
from tsched.orchestrator.llmd_status import group_status, job_states
from tsched.rpc.background import Background
from tsched.rpc.limits import check_name
from tsched.scheduler import Scheduler

SERVICE = "timeslice_orchestrator.v1alpha1.TimeSliceOrchestratorService"


class TimeSlice:
    """The four calls.

    Args:
        nodes: the agents' addresses by group and node; a node without one is named by itself.
    """

    def __init__(self, scheduler: Scheduler, guard: Guard, nodes: Mapping[str, Mapping[str, str]]) -> None:
        self._scheduler, self._guard, self._nodes = scheduler, guard, nodes
        self._line = Line(scheduler)
        self._background = Background()

    async def recover(self) -> None:
        """Take up again what was held before a restart: nobody else speaks for it, since its clients do not beat."""
        held, suspended = self._line.recover(self._scheduler.status())
        await asyncio.gather(*(self._adopt(turn) for turn in held))
        for turn in suspended:
            self._background.start(self._adopt(turn))
        ttl_us = [group.lease_ttl_us for group in self._scheduler.groups.values() if group.lease_ttl_us is not None]
        if ttl_us:
            self._background.start(self._keep_alive(min(ttl_us) / SECOND_US / 3))

    def close(self) -> None:
        """Renew nothing any more."""
        self._background.close()

    @property
    def handler(self) -> grpc.GenericRpcHandler[Any, Any]:
        """The service, for a `grpc.aio` server."""
        calls: dict[str, Unary] = {
            "Acquire": (self.acquire, pb.AcquireRequest),
            "Yield": (self.give_up, pb.YieldRequest),
            "ListGroups": (self.list_groups, pb.ListGroupsRequest),
            "GetGroupStatus": (self.status, pb.GetGroupStatusRequest),
        }
        return self._guard.service(SERVICE, calls)

    # ------------------------------------------------------------------- calls

    async def acquire(self, request: pb.AcquireRequest, context: Context) -> pb.AcquireResponse:
        """Wait for the job's turn on the group."""
        job, group = request.job_id, request.group_id
        caller = self._allowed(job, group, context)
        if self._line.get(job, group) is None:
            self._guard.limits.check_queue()
        await self._register(job, caller)
        turn = self._line.enter(job, group)
        lease = turn.lease if turn.held else None
        if lease is None:
            lease = await self._wait(turn)
        await lease.resumed()  # where a turn is asked for again that is interrupted
        await self._check_in_time(turn, lease, context)
        return pb.AcquireResponse(success=True, waited_ms=round(lease.waited_s * 1000), context_restored=lease.restored)

    async def give_up(self, request: pb.YieldRequest, context: Context) -> pb.YieldResponse:
        """End the job's turn, or its waiting for one; on a group that nobody holds nothing changes."""
        job, group = request.job_id, request.group_id
        self._allowed(job, group, context)
        holder, turn = self._scheduler.holder(group), self._line.get(job, group)
        waiting = self._scheduler.waiting(group)
        if holder is not None and holder.client == CLIENT + job:
            await self._release(turn, holder.lease)
        elif turn is not None and turn.held:
            await self._release(turn, turn.lease)
        elif turn is not None:
            await self._withdraw(turn)
            waiting = self._scheduler.waiting(group)
        elif holder is not None:
            raise Refusal(
                grpc.StatusCode.PERMISSION_DENIED,
                f"job {job!r} does not hold group {group!r}, but job {holder.job!r}, since {holder.held_s:.0f} s",
            )
        stays = self._scheduler.standing(group, job) == "resident"
        return pb.YieldResponse(success=True, pending_waiters=waiting, snapshot_deferred=stays)

    async def list_groups(self, request: pb.ListGroupsRequest, context: Context) -> pb.ListGroupsResponse:
        """The names of all groups."""
        self._guard.caller(context)
        return pb.ListGroupsResponse(group_ids=list(self._scheduler.groups))

    async def status(self, request: pb.GetGroupStatusRequest, context: Context) -> pb.GetGroupStatusResponse:
        """One group, and where the states of its jobs are."""
        self._guard.caller(context)
        self._check_group(request.group_id)
        group = self._scheduler.group_status(request.group_id)
        nodes = dict.fromkeys(self._scheduler.groups[group.name].nodes, "") | dict(self._nodes.get(group.name, {}))
        quarantined = {place.job for place in group.places if self._scheduler.is_quarantined(place.job)}
        return pb.GetGroupStatusResponse(
            group=group_status(group), agent_job_states=job_states(group, quarantined, nodes)
        )

    # ------------------------------------------------------------------ inside

    def _allowed(self, job: str, group: str, context: Context) -> Caller:
        caller = self._guard.caller(context)
        check_name("job_id", job)
        self._check_group(group)
        caller.check_owns(job, self._scheduler.jobs.get(job))
        return caller

    def _check_group(self, group: str) -> None:
        check_name("group_id", group)
        if group not in self._scheduler.groups:
            raise UnknownGroup(f"no group {group!r}; there are: {', '.join(sorted(self._scheduler.groups))}")

    async def _register(self, job: str, caller: Caller) -> None:
        if job in self._scheduler.jobs:
            return
        self._guard.limits.check_jobs()
        with suppress(DuplicateJob):
            await self._scheduler.add_job(Job(job, owner=caller.owner if caller.role == "job" else ""))
        caller.check_owns(job, self._scheduler.jobs.get(job))

    async def _wait(self, turn: Turn) -> Lease:
        """In line until the turn has come; one that nobody waits for any more is forgotten."""
        task = asyncio.current_task()
        assert task is not None
        outer = None if self._scheduler.knows(turn.client, turn.number) else self._line.outer(turn)
        turn.calls.add(task)
        try:
            lease = await self._scheduler.acquire(
                turn.job, turn.group, within=outer, client=turn.client, request=turn.number
            )
            if lease.held:
                self._line.granted(turn, lease)
                return lease
            raise LeaseLost(f"job {turn.job!r} gave group {turn.group!r} back in the moment in which it was granted")
        except asyncio.CancelledError:
            if not turn.withdrawn:
                raise
            task.uncancel()
            raise Refusal(
                grpc.StatusCode.ABORTED, f"job {turn.job!r} left the line for group {turn.group!r}, with Yield"
            ) from None
        finally:
            turn.calls.discard(task)
            if not turn.calls and not turn.held:
                self._line.drop(turn)

    async def _check_in_time(self, turn: Turn, lease: Lease, context: Context) -> None:
        """A grant that comes after its caller's deadline reaches nobody, and is given back."""
        left_s = cast("float | None", context.time_remaining())
        if left_s is not None and left_s <= 0 and not turn.told and not turn.calls:
            await self._release(turn, lease)
            raise Refusal(grpc.StatusCode.DEADLINE_EXCEEDED, f"the turn on group {turn.group!r} came too late")
        turn.told = True

    async def _release(self, turn: Turn | None, lease: Lease | int | None) -> None:
        assert lease is not None
        if turn is not None:
            self._line.drop(turn)
        await self._scheduler.release(lease)

    async def _withdraw(self, turn: Turn) -> None:
        """Nobody waits for this turn any more; those who did are told so."""
        adopted = None if turn.calls else asyncio.ensure_future(self._wait(turn))
        if adopted is not None:
            await asyncio.sleep(0)  # so that it waits
        turn.withdrawn = True
        for call in list(turn.calls):
            call.cancel()
        if adopted is not None:
            with suppress(TschedError):
                await self._release(turn, await adopted)
        await turn.over.wait()

    async def _adopt(self, turn: Turn) -> None:
        with suppress(TschedError):
            turn.told = True
            await self._wait(turn)

    async def _keep_alive(self, every_s: float) -> None:
        """A group's lease time to live is for clients that beat."""
        while True:
            await asyncio.sleep(every_s)
            for lease in self._line.holding():
                with suppress(LeaseLost):
                    await self._scheduler.renew(lease)
