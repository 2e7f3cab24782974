"""The service `tsched.v1.Operator`: what is and what happens, for everybody; repairs, for operators.

Who may: everybody who is known may look (GetStatus, Watch) and ask for a forecast, jobs for their own; the whole log is
for operators and read-only callers, since it shows every owner's past. A job registers and removes jobs of its owner.
All else is for operators.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import grpc

from tsched.errors import Invalid, UnknownGroup
from tsched.model import SECOND_US, seconds
from tsched.orchestrator.access import Context, Refusal
from tsched.orchestrator.changes import Changes
from tsched.orchestrator.config import Config
from tsched.orchestrator.drain import Away, drain, undrain
from tsched.orchestrator.export import exported
from tsched.orchestrator.forecast import Forecaster, Question
from tsched.orchestrator.guard import Guard, Streaming, Unary
from tsched.orchestrator.job_spec import job_of
from tsched.orchestrator.status_messages import status_message
from tsched.rpc.limits import MAX_GROUPS, check_name
from tsched.rpc.v1 import operator_pb2 as pb
from tsched.scheduler import Scheduler

SERVICE = "tsched.v1.Operator"
# Between two messages to one who watches; longer where it takes long to tell what is.
WATCH_S = 0.1
SHARE = 0.05


@dataclass(frozen=True, slots=True)
class Operator:
    """The calls.

    Args:
        away: why the agent of a group's node does not answer; empty where it does, or there is none.
    """

    scheduler: Scheduler
    guard: Guard
    config: Config
    changes: Changes
    away: Away
    version: str
    forecaster: Forecaster

    @property
    def handler(self) -> grpc.GenericRpcHandler[Any, Any]:
        """The service, for a `grpc.aio` server."""
        calls: dict[str, Unary] = {
            "GetStatus": (self.status, pb.StatusRequest),
            "RegisterJob": (self.register, pb.JobSpec),
            "RemoveJob": (self.remove, pb.JobName),
            "Unquarantine": (self.unquarantine, pb.JobName),
            "Evict": (self.evict, pb.EvictRequest),
            "Drain": (self.drain, pb.DrainRequest),
            "Forecast": (self.forecast, pb.ForecastRequest),
        }
        streams: dict[str, Streaming] = {
            "Watch": (self.watch, pb.StatusRequest),
            "ExportLog": (self.export, pb.ExportRequest),
        }
        return self.guard.service(SERVICE, calls, streams)

    # ----------------------------------------------------------------- looking

    async def status(self, request: pb.StatusRequest, context: Context) -> pb.Status:
        """What is."""
        self.guard.caller(context)
        return self._now(self._named(request.groups))

    async def watch(self, request: pb.StatusRequest, context: Context) -> AsyncIterator[pb.Status]:
        """What is, and again whenever that has changed. Who reads slowly is told less often."""
        self.guard.caller(context)
        names, clock = self._named(request.groups), asyncio.get_running_loop()
        while True:
            seen, began = self.changes.count, clock.time()
            message = self._now(names)
            took_s = clock.time() - began
            yield message
            await asyncio.sleep(max(WATCH_S, took_s / SHARE))
            await self.changes.after(seen)

    async def export(self, request: pb.ExportRequest, context: Context) -> AsyncIterator[pb.LogChunk]:
        """The decision log, as far as it is on disk."""
        caller = self.guard.caller(context)
        if caller.role == "job":
            raise Refusal(
                grpc.StatusCode.PERMISSION_DENIED, f"{caller} may not: the log is for operators and read-only"
            )
        async for piece in exported(self.config.server.log):
            yield pb.LogChunk(lines=piece)

    async def forecast(self, request: pb.ForecastRequest, context: Context) -> pb.ForecastReply:
        """When the job's next turn would come, and when it would be done."""
        caller = self.guard.caller(context)
        check_name("job", request.job)
        known = self.scheduler.jobs.get(request.job)
        if caller.role == "job":
            caller.check_owns(request.job, known)
        scheduler = self.scheduler
        now_us = round(scheduler.now_s() * SECOND_US)
        question = Question(
            scheduler.snapshot(),
            self.config.server.policy,
            tuple(scheduler.groups.values()),
            request.job,
            tuple(self._named(request.groups)) if request.groups else (),
            seconds(request.work_s) if request.HasField("work_s") else None,
            now_us,
        )
        found = await self.forecaster.answer(question)
        reply = pb.ForecastReply(turns_before=found.turns_before, because=found.because)
        if found.next_turn_us is not None:
            reply.next_turn_s = max(0, found.next_turn_us - now_us) / SECOND_US
        if found.finished_us is not None:
            reply.finished_s = max(0, found.finished_us - now_us) / SECOND_US
        return reply

    # ---------------------------------------------------------------- changing

    async def register(self, spec: pb.JobSpec, context: Context) -> pb.Nothing:
        """A new job, or what is new about one; what the message leaves out stays as it is."""
        caller = self.guard.caller(context)
        caller.check_may_change()
        check_name("name", spec.name)
        known = self.scheduler.jobs.get(spec.name)
        caller.check_owns(spec.name, known)
        if caller.role == "job" and caller.known:
            if spec.owner not in ("", caller.owner):
                text = f"owner {spec.owner!r} is not {caller.owner!r}, who calls"
                raise Refusal(grpc.StatusCode.PERMISSION_DENIED, text)
            spec.owner = caller.owner
        job = job_of(spec, known)
        if known is None:
            self.guard.limits.check_jobs()
            await self.scheduler.add_job(job)
        elif known != job:
            await self.scheduler.update_job(job)
        return pb.Nothing()

    async def remove(self, request: pb.JobName, context: Context) -> pb.Nothing:
        """The job is done, or not wanted any more."""
        caller = self.guard.caller(context)
        check_name("job", request.job)
        caller.check_owns(request.job, self.scheduler.jobs.get(request.job))
        await self.scheduler.remove_job(request.job)
        return pb.Nothing()

    async def unquarantine(self, request: pb.JobName, context: Context) -> pb.Nothing:
        """The job may have turns again."""
        self.guard.caller(context).check_operator()
        check_name("job", request.job)
        if request.job in self.scheduler.jobs and not self.scheduler.is_quarantined(request.job):
            raise _makes_no_sense(f"job {request.job!r} is not quarantined")
        await self.scheduler.readmit(request.job)
        return pb.Nothing()

    async def evict(self, request: pb.EvictRequest, context: Context) -> pb.Nothing:
        """Nothing of the job is left on the group, an operator says."""
        self.guard.caller(context).check_operator()
        check_name("job", request.job)
        check_name("group", request.group)
        if self.scheduler.standing(request.group, request.job) is None:
            raise _makes_no_sense(f"job {request.job!r} has no state on group {request.group!r}")
        await self.scheduler.force_eviction(request.group, request.job)
        return pb.Nothing()

    async def drain(self, request: pb.DrainRequest, context: Context) -> pb.Nothing:
        """No new turns on the group, or on with it."""
        self.guard.caller(context).check_operator()
        check_name("group", request.group)
        if request.undo:
            await undrain(self.scheduler, request.group, self.away)
        else:
            await drain(self.scheduler, request.group)
        return pb.Nothing()

    # ------------------------------------------------------------------ inside

    def _named(self, groups: Sequence[str]) -> list[str]:
        if len(groups) > max(MAX_GROUPS, len(self.scheduler.groups)):
            raise Invalid(f"{len(groups)} groups are named, and there are {len(self.scheduler.groups)}: name fewer")
        for name in groups:
            check_name("group", name)
            if name not in self.scheduler.groups:
                raise UnknownGroup(f"no group {name!r}; there are: {', '.join(sorted(self.scheduler.groups))}")
        return list(dict.fromkeys(groups)) or list(self.scheduler.groups)

    def _now(self, names: list[str]) -> pb.Status:
        scheduler = self.scheduler
        return status_message(
            scheduler.status(),
            names,
            policy=self.config.server.policy,
            version=self.version,
            stalled=scheduler.stalled,
        )


def _makes_no_sense(text: str) -> Refusal:
    return Refusal(grpc.StatusCode.FAILED_PRECONDITION, text)
