"""The agent's own service: orders once and fenced, processes found and registered, losses told, over restarts."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import grpc
import pytest

from tests.agent_site import OWN, PATIENCE_S, A, B, C, Client, agent, behind, client, until
from tests.process_trees import Job as Tree
from tests.process_trees import closing, end, identity, python
from tests.rpc_site import Recorder
from tsched import Group, Job, Scheduler
from tsched.agent.config import Config
from tsched.agent.server import serve
from tsched.backends import Backend, Order
from tsched.backends.fake import FakeBackend
from tsched.backends.process import Identity, ProcessBackend, SignalFreezer
from tsched.backends.process.identity import lives, stopped
from tsched.errors import Invalid
from tsched.orchestrator.agents import AgentWatch
from tsched.rpc.processes import this_host
from tsched.rpc.v1 import agent_pb2 as own
from tsched.rpc.v1 import worker_pb2 as pb
from tsched.testing.backend_suite import check_backend

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).resolve().parent.parent
SLEEPER = "import time; print('up', flush=True); time.sleep(600)"
PARENT = "import subprocess, sys; subprocess.run([sys.executable, '-I', '-S', '-c', sys.argv[1]])"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Workers:
    """Processes that do nothing, until the test is over."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    def start(self, job: str = "", group: str = "", code: str = SLEEPER, *arguments: str) -> subprocess.Popen[str]:
        """One that has come up, with what its environment says."""
        said = {"TIMESLICE_JOB_ID": job} | ({"TIMESLICE_GROUP": group} if group else {})
        process = self._stack.enter_context(closing(python(code, *arguments, environment=said if job else None)))
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        return process


@pytest.fixture
def workers() -> Iterator[Workers]:
    with ExitStack() as stack:
        yield Workers(stack)


@asynccontextmanager
async def calling(folder: Path, backend: Any = None, **settings: Any) -> AsyncIterator[Client]:
    async with agent(folder, backend, **settings) as running, client(running.address) as caller:
        yield caller


def process_of(pid: int) -> pb.Process:
    return pb.Process(pid=pid, started=identity(pid).started, host=this_host())


async def register(caller: Client, job: str, process: pb.Process, group: str = "g") -> None:
    await caller.call(OWN + "Register", own.RegisterProcess(job=job, group=group, process=process))


async def seen(caller: Client, job: str = "a") -> pb.Presence:
    answer = await caller.carry(pb.KIND_PROBE, 0, job, 0)
    return answer.presence


# -------------------------------------------------------------------------------- orders


async def test_an_order_is_done_once_however_often_it_is_asked(tmp_path: Path) -> None:
    recorder = Recorder()
    recorder.allocate("g", "0", "a", 64)
    async with calling(tmp_path, recorder) as caller:
        for _ in range(3):
            assert (await caller.carry(pb.KIND_PARK, 1)).HasField("done")
        assert (await seen(caller)).parked_bytes == 64
        assert (await caller.carry(pb.KIND_RESTORE, 2)).HasField("done")
        assert (await caller.carry(pb.KIND_PARK, 1)).HasField("done")
        assert (await seen(caller)).resident_bytes == 64


async def test_a_stale_token_is_refused_also_after_the_agent_was_started_anew(tmp_path: Path) -> None:
    for op in (1, 2):
        async with calling(tmp_path, FakeBackend()) as caller:
            assert (await caller.carry(pb.KIND_PARK, op, token=5)).HasField("done")
            assert (await caller.carry(pb.KIND_PARK, 9, token=4)).failure.code == "stale_token"
    async with calling(tmp_path, FakeBackend()) as caller:
        assert (await caller.carry(pb.KIND_PARK, 1, token=4)).failure.code == "stale_token"


@pytest.mark.parametrize(
    "wrong",
    [{"job": ""}, {"job": "x" * 300}, {"group": ""}, {"node": "a\nb"}, {"size_bytes": -1}, {"kind": 77}],
    ids=str,
)
async def test_a_wrong_order_is_answered_with_a_failure(tmp_path: Path, wrong: dict[str, Any]) -> None:
    async with calling(tmp_path, FakeBackend()) as caller:
        answer = await caller.carry(**({"kind": pb.KIND_PARK, "op": 1} | wrong))
        assert answer.failure.text
        assert (await caller.carry(pb.KIND_PARK, 1)).HasField("done")


async def test_whatever_a_backend_raises_is_an_answer(tmp_path: Path) -> None:
    async with calling(tmp_path, Recorder(fails="park")) as caller:
        answer = await caller.carry(pb.KIND_PARK, 1)
    assert (answer.failure.code, answer.failure.text) == ("backend", "RuntimeError: no park today")


async def test_an_order_that_nobody_waits_for_comes_to_its_end(tmp_path: Path, workers: Workers) -> None:
    process = workers.start(A)
    async with calling(tmp_path) as caller:
        with suppress(grpc.aio.AioRpcError):
            order = pb.Order(kind=pb.KIND_PARK, op=1, group="g", node="0", job=A, token=1)
            await caller.call(OWN + "Carry", order, timeout_s=0.005)
        assert (await caller.carry(pb.KIND_PARK, 1, A)).HasField("done")
        assert stopped(identity(process.pid))
        assert (await caller.carry(pb.KIND_RESTORE, 2, A)).HasField("done")


async def test_an_oversized_message_is_refused_and_nobody_else_notices(tmp_path: Path) -> None:
    async with calling(tmp_path, FakeBackend()) as caller:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await caller.carry(pb.KIND_PARK, 1, "x" * (2 << 20))
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert (await caller.carry(pb.KIND_PARK, 1)).HasField("done")


async def test_garbage_on_the_socket_is_no_concern_of_others(tmp_path: Path) -> None:
    async with calling(tmp_path, FakeBackend()) as caller:
        async with await anyio.connect_unix(f"{tmp_path}/agent.sock") as stream:
            await stream.send(b"GET / HTTP/1.1\r\n\r\n" + bytes(range(256)) * 100)
            with suppress(anyio.EndOfStream, anyio.BrokenResourceError), anyio.move_on_after(1):
                while True:
                    await stream.receive()
        assert (await caller.carry(pb.KIND_PARK, 1)).HasField("done")


# -------------------------------------------------------------------------------- processes


async def test_processes_that_name_the_job_in_their_environment_are_parked_and_no_others(
    tmp_path: Path, workers: Workers
) -> None:
    ours, too = workers.start(A), workers.start(A, "g")
    others = [workers.start(B), workers.start(A, "elsewhere"), workers.start()]
    async with calling(tmp_path) as caller:
        assert (await caller.carry(pb.KIND_PARK, 1, A)).HasField("done")
        assert all(stopped(identity(each.pid)) for each in (ours, too))
        assert not any(stopped(identity(each.pid)) for each in others)
        assert (await seen(caller, A)).parked_bytes > 0
        assert (await caller.carry(pb.KIND_RESTORE, 2, A)).HasField("done")
        assert not any(stopped(identity(each.pid)) for each in (ours, too))
        (job,) = (await caller.describe()).jobs
        assert (job.job, job.group, job.standing, set(job.pids)) == (A, "g", "running", {ours.pid, too.pid})


async def test_a_job_without_processes_has_nothing_to_move(tmp_path: Path, workers: Workers) -> None:
    async with calling(tmp_path) as caller:
        for op, kind in enumerate((pb.KIND_PARK, pb.KIND_RESTORE, pb.KIND_DISCARD, pb.KIND_PARK), 1):
            assert (await caller.carry(kind, op, A)).HasField("done")
        assert (await seen(caller, A)).alive
        process = workers.start(A)
        assert (await caller.carry(pb.KIND_PARK, 9, A)).HasField("done")
        assert stopped(identity(process.pid))
        assert (await caller.carry(pb.KIND_RESTORE, 10, A)).HasField("done")


async def test_a_discard_ends_the_jobs_processes_and_is_no_loss(tmp_path: Path, workers: Workers) -> None:
    process, other = workers.start(A), workers.start(B)
    async with calling(tmp_path) as caller:
        assert (await caller.carry(pb.KIND_PARK, 1, A)).HasField("done")
        assert (await caller.carry(pb.KIND_DISCARD, 2, A)).HasField("done")
        assert process.wait(PATIENCE_S) == -signal.SIGKILL
        assert other.poll() is None
        assert (await caller.carry(pb.KIND_RESTORE, 3, A)).failure.code == "process_gone"
        assert not (await caller.describe()).jobs
        await no_loss(caller)
        again = workers.start(A)
        assert (await caller.carry(pb.KIND_PARK, 4, A)).HasField("done")
        assert stopped(identity(again.pid))


async def test_a_job_at_rest_is_looked_at_once(
    tmp_path: Path, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []
    probe = ProcessBackend.probe

    async def counting(self: ProcessBackend, group: str, node: str, job: str, *, deadline_us: int) -> Any:
        looks.append(job)
        return await probe(self, group, node, job, deadline_us=deadline_us)

    monkeypatch.setattr(ProcessBackend, "probe", counting)
    process = workers.start()
    async with calling(tmp_path) as caller:
        await register(caller, "a", process_of(process.pid))
        for _ in range(3):
            assert (await caller.describe()).jobs[0].standing == "running"
        assert (await caller.carry(pb.KIND_PARK, 1)).HasField("done")
        for _ in range(3):
            assert (await caller.describe()).jobs[0].standing == "parked"
        end(process)
        assert await next_loss(caller) == ("a", "g")
        assert (await caller.describe()).jobs[0].standing == "gone"
    assert len(looks) == 2


async def test_a_registered_process_is_parked_with_all_that_descend_from_it(tmp_path: Path, workers: Workers) -> None:
    process = workers.start("", "", PARENT, SLEEPER)
    async with calling(tmp_path) as caller:
        await register(caller, "a", process_of(process.pid))
        await register(caller, "a", process_of(process.pid))
        assert (await caller.carry(pb.KIND_PARK, 1)).HasField("done")
        assert stopped(identity(process.pid))
        described = (await caller.describe()).jobs[0]
        assert described.standing == "parked"
        assert len(described.pids) == 2
        assert (await caller.carry(pb.KIND_RESTORE, 2)).HasField("done")


async def test_what_may_not_be_parked_is_not_registered(tmp_path: Path, workers: Workers) -> None:
    mine, theirs, named = workers.start(), workers.start(), workers.start(C)
    started = identity(mine.pid).started
    async with calling(tmp_path) as caller:
        await register(caller, "b", process_of(theirs.pid))
        wrong = {
            "belongs to job 'b'": process_of(theirs.pid),
            f"of job '{C}'": process_of(named.pid),
            "another one has its number": pb.Process(pid=mine.pid, started=started + 1, host=this_host()),
            "not of this host": pb.Process(pid=mine.pid, started=started, host="elsewhere"),
            "is no pid": pb.Process(host=this_host()),
            "never was": pb.Process(pid=2**22 + 1, started=1, host=this_host()),
            "descends from": pb.Process(pid=1, host=this_host()),
        }
        for text, process in wrong.items():
            with pytest.raises(grpc.aio.AioRpcError, match=text) as refused:
                await register(caller, "a", process)
            assert refused.value.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND)
        for job in ("", "x" * 300, "a\nb"):
            with pytest.raises(grpc.aio.AioRpcError):
                await register(caller, job, process_of(mine.pid))
        await register(caller, "a", process_of(mine.pid))


async def test_a_process_that_was_unregistered_is_left_alone(tmp_path: Path, workers: Workers) -> None:
    one, two = workers.start(), workers.start()
    async with calling(tmp_path) as caller:
        for process in (one, two):
            await register(caller, "a", process_of(process.pid))
        gone = own.RegisterProcess(job="a", group="g", process=process_of(one.pid))
        for _ in range(2):
            await caller.call(OWN + "Unregister", gone)
        assert (await caller.carry(pb.KIND_PARK, 1)).HasField("done")
        assert stopped(identity(two.pid))
        assert not stopped(identity(one.pid))
        assert (await caller.carry(pb.KIND_RESTORE, 2)).HasField("done")


async def test_registering_with_a_group_of_another_backend_says_so(tmp_path: Path, workers: Workers) -> None:
    process = workers.start()
    async with calling(tmp_path, FakeBackend()) as caller:
        with pytest.raises(grpc.aio.AioRpcError, match="not moved by its processes"):
            await register(caller, "a", process_of(process.pid))


class Registered:
    """For `check_backend`: real processes that register with an agent, which is ordered from afar."""

    suspendable = True

    def __init__(self, backend: Backend, caller: Client, stack: ExitStack) -> None:
        self._caller, self._stack = caller, stack
        self._jobs: dict[str, Tree] = {}
        self.park, self.restore, self.discard = backend.park, backend.restore, backend.discard
        self.probe, self.sizes = backend.probe, backend.sizes

    async def allocate(self, group: str, node: str, job: str, size_bytes: int) -> None:
        made = self._jobs[job] = await anyio.to_thread.run_sync(Tree, size_bytes)
        self._stack.callback(made.close)
        await register(self._caller, job, process_of(made.pid), group)

    async def work(self, group: str, node: str, job: str) -> None:
        await anyio.to_thread.run_sync(self._jobs[job].ask, "work", 10)

    async def contents(self, group: str, node: str, job: str) -> bytes:
        return await anyio.to_thread.run_sync(self._jobs[job].ask, "read", 10)

    async def kill(self, group: str, node: str, job: str) -> None:
        await anyio.to_thread.run_sync(self._jobs[job].kill)


async def test_the_contract_holds_for_real_processes_behind_an_agent(tmp_path: Path) -> None:
    rigs = 0
    with ExitStack() as processes:
        async with AsyncExitStack() as stack:

            async def make() -> Registered:
                nonlocal rigs
                rigs += 1
                caller = await stack.enter_async_context(calling(tmp_path, name=str(rigs)))
                backend = await stack.enter_async_context(behind(f"unix:{tmp_path}/{rigs}.sock"))
                return Registered(backend, caller, processes)

            await check_backend(make, grace_us=5_000_000)
    assert rigs > 5


# -------------------------------------------------------------------------------- losses


async def losses(caller: Client) -> AsyncIterator[own.JobLoss]:
    listen: Any = caller.channel.unary_stream(
        OWN + "Losses", own.LossesRequest.SerializeToString, own.JobLoss.FromString
    )
    async for loss in listen(own.LossesRequest()):
        yield loss


async def next_loss(caller: Client) -> tuple[str, str]:
    with anyio.fail_after(PATIENCE_S):
        async for loss in losses(caller):
            return loss.job, loss.group
    raise AssertionError("the stream ended")


async def no_loss(caller: Client) -> None:
    listen: Any = caller.channel.unary_stream(
        OWN + "Losses", own.LossesRequest.SerializeToString, own.JobLoss.FromString
    )
    call = listen(own.LossesRequest(), timeout=0.2)
    with pytest.raises(grpc.aio.AioRpcError) as ended:
        raise AssertionError(f"a loss is told: {await anext(aiter(call))}")
    assert ended.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_a_job_whose_processes_have_all_ended_is_lost(tmp_path: Path, workers: Workers) -> None:
    one, two = workers.start(A), workers.start(A)
    async with calling(tmp_path) as caller:
        await register(caller, A, process_of(one.pid))
        end(one)
        await no_loss(caller)
        end(two)
        assert await next_loss(caller) == (A, "g")
        assert await next_loss(caller) == (A, "g")  # told again to who listens later
        assert (await caller.describe()).jobs[0].standing == "gone"
        assert not (await seen(caller, A)).alive
        assert (await caller.carry(pb.KIND_DISCARD, 1, A)).HasField("done")
        await no_loss(caller)


async def test_a_job_that_was_started_anew_is_not_lost(tmp_path: Path, workers: Workers) -> None:
    first = workers.start()
    async with calling(tmp_path) as caller:
        await register(caller, "a", process_of(first.pid))
        end(first)
        assert await next_loss(caller) == ("a", "g")
        await register(caller, "a", process_of(workers.start().pid))
        await no_loss(caller)


async def test_a_loss_is_noticed_by_the_next_agent_too(tmp_path: Path, workers: Workers) -> None:
    process = workers.start()
    async with calling(tmp_path) as caller:
        await register(caller, "a", process_of(process.pid))
    end(process)
    async with calling(tmp_path) as caller:
        assert await next_loss(caller) == ("a", "g")


async def test_a_frozen_job_is_not_lost(tmp_path: Path, workers: Workers) -> None:
    workers.start(A)
    async with calling(tmp_path) as caller:
        assert (await caller.carry(pb.KIND_PARK, 1, A)).HasField("done")
        await no_loss(caller)
        assert (await caller.carry(pb.KIND_RESTORE, 2, A)).HasField("done")


async def test_a_job_without_heartbeats_loses_its_lease_when_its_processes_have_ended(
    tmp_path: Path, workers: Workers
) -> None:
    process, other = workers.start(), workers.start()
    async with (
        calling(tmp_path) as caller,
        behind(f"unix:{tmp_path}/agent.sock") as backend,
        Scheduler([Group("g")], backend=backend, drain_s=0.1) as scheduler,
        AgentWatch(scheduler, backend, beat_s=0.05) as watch,
    ):
        await until(lambda: not watch.away, "the agent answers")
        for job, each in (("a", process), ("b", other)):
            await scheduler.add_job(Job(job))
            await register(caller, job, process_of(each.pid))
        held = await scheduler.acquire("a", "g", client="llmd:a", request=0)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_acquire_and_release, scheduler)
            end(process)
            await until(lambda: held.lost_reason is not None, "the lease is lost")
        assert "a" not in scheduler.jobs


async def test_a_job_with_heartbeats_is_left_to_its_client(tmp_path: Path, workers: Workers) -> None:
    process = workers.start()
    async with (
        calling(tmp_path) as caller,
        behind(f"unix:{tmp_path}/agent.sock") as backend,
        Scheduler([Group("g")], backend=backend, drain_s=0.1) as scheduler,
        AgentWatch(scheduler, backend, beat_s=0.05) as watch,
    ):
        await until(lambda: not watch.away, "the agent answers")
        await scheduler.add_job(Job("a"))
        await register(caller, "a", process_of(process.pid))
        held = await scheduler.acquire("a", "g", client="its own", request=0)
        end(process)
        assert await next_loss(caller) == ("a", "g")
        await anyio.sleep(0.2)
        assert held.lost_reason is None


async def _acquire_and_release(scheduler: Scheduler) -> None:
    async with scheduler.hold("b", "g"):
        pass


# -------------------------------------------------------------------------------- killed, and started again


@asynccontextmanager
async def program(folder: Path) -> AsyncIterator[subprocess.Popen[str]]:
    """An agent in a process of its own, killed at the end."""
    command = [sys.executable, "-W", "error", "-m", "tests.test_agent_service", str(folder)]
    made = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)  # noqa: ASYNC220  it returns at once
    with made as process:
        try:
            assert process.stdout is not None
            assert await anyio.to_thread.run_sync(process.stdout.readline) == "serving\n"
            yield process
        finally:
            process.kill()


async def _serve(folder: str) -> None:
    class Slow(SignalFreezer):
        """Takes its time over the last process, as a large state would."""

        def freeze(self, members: Any, limit_s: float) -> None:
            if Path(folder, "slow").exists():
                Path(folder, "freezing").touch()
                super().freeze(lambda: members()[:1], limit_s)
                time.sleep(60)
            super().freeze(members, limit_s)

    config = Config(listen=f"unix:{folder}/agent.sock", state=f"{folder}/agent.json")
    async with serve(config, backends={"": ProcessBackend(freezer=lambda tree: Slow())}):
        print("serving", flush=True)
        await anyio.sleep_forever()


async def test_an_agent_that_is_killed_in_the_midst_of_a_park_finishes_it_when_it_is_started_again(
    tmp_path: Path, workers: Workers
) -> None:
    processes = [workers.start() for _ in range(3)]
    slow, freezing = tmp_path / "slow", tmp_path / "freezing"
    slow.touch()
    async with behind(f"unix:{tmp_path}/agent.sock") as backend, anyio.create_task_group() as tasks:
        parked = anyio.Event()

        async def park() -> None:
            await backend.park(Order(7, "g", "0", "a", 3))
            parked.set()

        async with program(tmp_path), client(f"unix:{tmp_path}/agent.sock") as caller:
            for process in processes:
                await register(caller, "a", process_of(process.pid))
            tasks.start_soon(park)
            await until(freezing.exists, "the park is under way")
        slow.unlink()
        assert not parked.is_set()
        async with program(tmp_path):
            with anyio.fail_after(PATIENCE_S):
                await parked.wait()
            assert all(stopped(identity(process.pid)) for process in processes)
            assert (await backend.probe("g", "0", "a", deadline_us=0)).parked_bytes > 0
            await backend.park(Order(7, "g", "0", "a", 3))
            await backend.restore(Order(8, "g", "0", "a", 3))
            assert not any(stopped(identity(process.pid)) for process in processes)


async def test_a_parked_job_is_found_again_by_the_next_agent(tmp_path: Path, workers: Workers) -> None:
    process = workers.start()
    async with program(tmp_path), client(f"unix:{tmp_path}/agent.sock") as caller:
        await register(caller, "a", process_of(process.pid))
        assert (await caller.carry(pb.KIND_PARK, 1)).HasField("done")
    async with program(tmp_path), client(f"unix:{tmp_path}/agent.sock") as caller:
        assert (await seen(caller)).parked_bytes > 0
        assert (await caller.carry(pb.KIND_RESTORE, 2)).HasField("done")
        assert not stopped(identity(process.pid))
        assert (await caller.carry(pb.KIND_PARK, 3, token=0)).failure.code == "stale_token"


async def test_the_state_of_another_boot_means_nothing(tmp_path: Path, workers: Workers) -> None:
    process = workers.start()
    async with calling(tmp_path) as caller:
        await register(caller, "a", process_of(process.pid))
    file = tmp_path / "agent.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"host": "another boot"}))
    async with calling(tmp_path) as caller:
        assert not (await caller.describe()).jobs
    assert lives(Identity(process.pid, identity(process.pid).started))


@pytest.mark.parametrize("content", ["no json", '{"known": 7}', '{"other": 1}', ""])
async def test_a_state_file_that_is_none_is_not_written_over(tmp_path: Path, content: str) -> None:
    file = tmp_path / "agent.json"
    file.write_text(content)
    with pytest.raises(Invalid, match=r"agent\.json: not the state of an agent"):
        async with calling(tmp_path):
            pass
    assert file.read_text() == content


async def test_where_the_state_cannot_be_written_orders_are_refused(tmp_path: Path) -> None:
    async with calling(tmp_path, FakeBackend(), state=f"{tmp_path}/none/agent.json") as caller:
        answer = await caller.carry(pb.KIND_PARK, 1)
    assert "cannot be written" in answer.failure.text


if __name__ == "__main__":
    anyio.run(_serve, sys.argv[1])
