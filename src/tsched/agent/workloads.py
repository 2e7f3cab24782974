"""Processes that park themselves: each keeps a stream to the agent, registers for its job, and obeys its commands.

A command is sent once at most. One that was sent over a stream which then ended has failed, whatever came of it.
Nothing here knows tokens or turns.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TypeAlias
from uuid import uuid4

from tsched.agent.limits import TooMany
from tsched.errors import BackendError, Invalid
from tsched.llmd import agent_pb2 as pb
from tsched.rpc.limits import MAX_TAGS, check_name

Mode: TypeAlias = "pb.SuspendMode.ValueType"

_END = None


class Workload:
    """One stream, from its registration to its end."""

    def __init__(self, register: pb.RegisterWorkload) -> None:
        self.job, self.group = register.job_id, register.group
        said = register.capabilities
        self.default_mode: Mode = said.default_mode or pb.SUSPEND_MODE_OFFLOAD
        self.modes = set(said.supported_modes) or {self.default_mode}
        self.commands: asyncio.Queue[pb.AgentCommand | None] = asyncio.Queue()
        self.ended = ""
        self._waiting: dict[str, asyncio.Future[pb.CommandResult]] = {}

    @property
    def busy(self) -> bool:
        """Whether a command is under way."""
        return bool(self._waiting)

    def mode(self, asked: Mode) -> Mode:
        """Which mode a snapshot has; raises `BackendError` for one that the workload does not support."""
        mode = asked or self.default_mode
        if mode not in self.modes:
            supported = ", ".join(sorted(pb.SuspendMode.Name(each) for each in self.modes))
            name = pb.SuspendMode.Name(mode)
            raise BackendError(f"the workload of job {self.job!r} does not support {name}: it supports {supported}")
        return mode

    async def obey(self, command: pb.AgentCommand, timeout_s: float) -> None:
        """Have it carried out; raises `BackendError` where it failed, or nobody said that it was done."""
        if self.ended:
            raise BackendError(self.ended)
        command.command_id = uuid4().hex
        answer: asyncio.Future[pb.CommandResult] = asyncio.get_running_loop().create_future()
        self._waiting[command.command_id] = answer
        self.commands.put_nowait(command)
        try:
            result = await asyncio.wait_for(answer, timeout_s)
        except TimeoutError:
            raise BackendError(f"the workload of job {self.job!r} did not answer within {timeout_s:g} s") from None
        finally:
            self._waiting.pop(command.command_id, None)
        if not result.ok:
            raise BackendError(f"the workload of job {self.job!r} failed: {result.error or 'it did not say why'}")

    def answered(self, result: pb.CommandResult) -> None:
        """What came of a command; an answer to none that is waited for is left alone."""
        answer = self._waiting.get(result.command_id)
        if answer is not None and not answer.done():
            answer.set_result(result)

    def end(self, why: str) -> None:
        """No command is obeyed any more, and those under way have failed."""
        if self.ended:
            return
        self.ended = why
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(BackendError(why))
        self.commands.put_nowait(_END)


class Workloads:
    """The workloads that are connected, one for each job."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._here: dict[str, Workload] = {}

    def of(self, job: str) -> Workload:
        """Raises `BackendError` where there is none."""
        found = self.find(job)
        if found is None:
            raise BackendError(f"job {job!r} has no workload on the channel: open a WorkloadChannel and register it")
        return found

    def find(self, job: str) -> Workload | None:
        found = self._here.get(job)
        return found if found is not None and not found.ended else None

    def all(self) -> list[Workload]:
        return list(self._here.values())

    def close(self) -> None:
        for workload in list(self._here.values()):
            workload.end("the agent shuts down")

    async def attend(self, messages: AsyncIterator[pb.WorkloadMessage]) -> AsyncIterator[pb.AgentCommand]:
        """One stream: its commands, until it ends.

        Raises:
            Invalid: it does not begin with a registration, or with a wrong one.
            TooMany: no more are taken.
            BackendError: the job was registered again by another stream.
        """
        first = await anext(aiter(messages), None)
        workload = self._enter(first)
        hearing = asyncio.ensure_future(_hear(workload, messages))
        try:
            while (command := await workload.commands.get()) is not None:
                yield command
        finally:
            hearing.cancel()
            if self._here.get(workload.job) is workload:
                del self._here[workload.job]
            workload.end(f"the stream of the workload of job {workload.job!r} has ended")
        if workload.ended.startswith("replaced"):
            raise BackendError(workload.ended)

    def _enter(self, first: pb.WorkloadMessage | None) -> Workload:
        if first is None or not first.HasField("register"):
            raise Invalid("the first message on a WorkloadChannel must be RegisterWorkload")
        check_name("job_id", first.register.job_id)
        check_name("group", first.register.group, empty=True)
        if len(first.register.capabilities.tags) > MAX_TAGS:
            raise Invalid(f"a workload has at most {MAX_TAGS} tags")
        before = self._here.get(first.register.job_id)
        if before is None and len(self._here) >= self._most:
            raise TooMany(f"{self._most} workloads are connected, and no more are taken: limits.workloads")
        if before is not None:
            before.end(f"replaced: job {before.job!r} was registered again by another stream")
        workload = self._here[first.register.job_id] = Workload(first.register)
        return workload


async def _hear(workload: Workload, messages: AsyncIterator[pb.WorkloadMessage]) -> None:
    why = f"the stream of the workload of job {workload.job!r} has ended"
    with suppress(Exception):  # a broken stream ends like any other
        async for message in messages:
            if message.HasField("result"):
                workload.answered(message.result)
    workload.end(why)
