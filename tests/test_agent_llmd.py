"""llm-d's service of the agent: operations with ids, what its status says, and workloads that park themselves."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import grpc
import pytest

from tests.agent_site import LLMD, PATIENCE_S, A, B, Client, agent, client, until
from tests.process_trees import closing, end, identity, python
from tests.rpc_site import Recorder
from tsched.agent.config import Config
from tsched.agent.listeners import listeners_of
from tsched.agent.server import serve
from tsched.backends.fake import FakeBackend
from tsched.backends.nvml import Nvml
from tsched.backends.process.identity import stopped
from tsched.costs import FixedTable
from tsched.llmd import agent_pb2 as llmd
from tsched.rpc.v1 import worker_pb2 as pb

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).resolve().parent.parent
SLEEPER = "import time; print('up', flush=True); time.sleep(600)"
SIZE = 64


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def start() -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Starts processes that do nothing, each of the job that its environment names."""
    with ExitStack() as stack:

        def make(job: str = "") -> subprocess.Popen[str]:
            process = stack.enter_context(closing(python(SLEEPER, environment={"TIMESLICE_JOB_ID": job})))
            assert process.stdout is not None
            assert process.stdout.readline() == "up\n"
            return process

        yield make


Start = Callable[[str], subprocess.Popen[str]]


@asynccontextmanager
async def calling(folder: Path, backend: Any = None, **settings: Any) -> AsyncIterator[Client]:
    async with agent(folder, backend, **settings) as running, client(running.address) as caller:
        yield caller


def device(jobs: Sequence[str] = "a") -> FakeBackend:
    fake = FakeBackend()
    for job in jobs:
        fake.allocate("g", "0", job, SIZE)
    return fake


# -------------------------------------------------------------------------------- operations


async def test_a_snapshot_and_a_restore_are_operations_with_figures(tmp_path: Path) -> None:
    async with calling(tmp_path, device()) as caller:
        parked = await caller.done(await caller.snapshot("a"))
        assert (parked.storage_bytes, parked.snapshot_device_bytes) == (SIZE, SIZE)
        assert parked.elapsed_ms >= 0
        assert not parked.HasField("error")
        assert await caller.states() == {"a": "SAVED"}
        restored = await caller.done(await caller.restore("a"))
        assert (restored.storage_bytes, restored.snapshot_device_bytes) == (0, SIZE)
        assert await caller.states() == {"a": "RUNNING"}


async def test_an_operation_is_pending_while_the_state_is_moved(tmp_path: Path) -> None:
    fake = FakeBackend(costs=FixedTable(default_us=300_000))
    fake.allocate("g", "0", "a", SIZE)
    async with calling(tmp_path, fake) as caller:
        id = await caller.snapshot("a")
        assert (await caller.operation(id)).status == llmd.OPERATION_STATUS_PENDING
        assert await caller.states() == {"a": "TRANSITIONING"}
        assert await caller.snapshot("a") == id  # the same, since it is under way
        done = await caller.done(id)
        assert done.elapsed_ms >= 250
        assert (await caller.operation(id)).elapsed_ms == done.elapsed_ms
        assert await caller.snapshot("a") != id


async def test_what_fails_is_a_failed_operation_with_a_text(tmp_path: Path) -> None:
    fake = Recorder(fails="park")
    fake.allocate("g", "0", "a", SIZE)
    async with calling(tmp_path, fake) as caller:
        failed = await caller.ended(await caller.snapshot("a"))
        assert (failed.status, failed.error) == (llmd.OPERATION_STATUS_FAILED, "no park today")
        nothing = await caller.ended(await caller.restore("never-parked"))
        assert nothing.status == llmd.OPERATION_STATUS_FAILED
        assert (await caller.states())["a"] == "RUNNING"


async def test_an_operation_that_never_was_is_not_found(tmp_path: Path) -> None:
    async with calling(tmp_path, device()) as caller:
        for id in ("", "other", "x" * 10_000):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await caller.operation(id)
            assert refused.value.code() is grpc.StatusCode.NOT_FOUND


async def test_only_the_newest_operations_are_remembered(tmp_path: Path) -> None:
    async with calling(tmp_path, device(), limits={"operations": 3}) as caller:
        ids = []
        for _ in range(3):
            for begin in (caller.snapshot, caller.restore):
                ids.append(await begin("a"))
                await caller.done(ids[-1])
        for id in ids[-3:]:
            assert (await caller.operation(id)).status == llmd.OPERATION_STATUS_COMPLETE
        with pytest.raises(grpc.aio.AioRpcError):
            await caller.operation(ids[0])


async def test_too_many_operations_at_once_are_refused(tmp_path: Path) -> None:
    fake = FakeBackend(costs=FixedTable(default_us=60_000_000))
    async with calling(tmp_path, fake, limits={"operations": 2}) as caller:
        for job in "ab":
            await caller.snapshot(job)
        with pytest.raises(grpc.aio.AioRpcError, match=r"limits\.operations") as refused:
            await caller.snapshot("c")
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize("job", ["", "x" * 300, "a\x00b"])
async def test_wrong_ids_are_invalid(tmp_path: Path, job: str) -> None:
    async with calling(tmp_path, device()) as caller:
        for begin in (caller.snapshot, caller.restore):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await begin(job)
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_orders_without_tokens_are_obeyed_and_undercut_none(tmp_path: Path) -> None:
    async with calling(tmp_path, device()) as caller:
        assert (await caller.carry(pb.KIND_PARK, 1, token=5)).HasField("done")
        await caller.done(await caller.restore("a"))
        await caller.done(await caller.snapshot("a"))
        assert (await caller.carry(pb.KIND_RESTORE, 2, token=5)).HasField("done")
        assert (await caller.carry(pb.KIND_PARK, 3, token=4)).failure.code == "stale_token"
        assert await caller.states() == {"a": "RUNNING"}


async def test_a_jobs_death_is_its_own_matter(tmp_path: Path) -> None:
    fake = device("ab")
    async with calling(tmp_path, fake) as caller:
        for job in "ab":
            await caller.done(await caller.snapshot(job))
        fake.kill("g", "0", "a")
        assert (await caller.ended(await caller.restore("a"))).status == llmd.OPERATION_STATUS_FAILED
        assert await caller.states() == {"a": "IDLE", "b": "SAVED"}
        await caller.done(await caller.restore("b"))


# -------------------------------------------------------------------------------- processes


async def test_without_a_config_the_jobs_processes_are_discovered(tmp_path: Path, start: Start) -> None:
    ours, other = start(A), start(B)
    async with calling(tmp_path) as caller:
        parked = await caller.done(await caller.snapshot(A))
        assert parked.storage_bytes > 0
        assert stopped(identity(ours.pid))
        assert not stopped(identity(other.pid))
        await caller.done(await caller.restore(A))
        assert not stopped(identity(ours.pid))


async def test_pids_that_are_named_are_parked(tmp_path: Path, start: Start) -> None:
    process = start("")
    config = llmd.BackendConfig(cuda=llmd.CudaBackendConfig(explicit_target=llmd.ProcessTarget(pids=[process.pid])))
    async with calling(tmp_path) as caller:
        await caller.done(await caller.snapshot("a", backend_config=config))
        assert stopped(identity(process.pid))
        await caller.done(await caller.restore("a"))
        assert not stopped(identity(process.pid))
        end(process)
        await until(lambda: _states(caller, {"a": "IDLE"}), "the agent notices its end")


async def _states(caller: Client, wanted: dict[str, str]) -> bool:
    return await caller.states() == wanted


@pytest.mark.parametrize("pid", [1, -3, 2**22 + 1])
async def test_pids_that_may_not_be_parked_fail_the_operation(tmp_path: Path, pid: int) -> None:
    config = llmd.BackendConfig(cuda=llmd.CudaBackendConfig(explicit_target=llmd.ProcessTarget(pids=[pid])))
    async with calling(tmp_path) as caller:
        failed = await caller.ended(await caller.snapshot("a", backend_config=config))
    assert failed.status == llmd.OPERATION_STATUS_FAILED
    assert str(pid) in failed.error


async def test_a_process_of_another_job_is_not_parked(tmp_path: Path, start: Start) -> None:
    theirs = start(B)
    config = llmd.BackendConfig(cuda=llmd.CudaBackendConfig(explicit_target=llmd.ProcessTarget(pids=[theirs.pid])))
    async with calling(tmp_path) as caller:
        failed = await caller.ended(await caller.snapshot("a", backend_config=config))
    assert f"of job '{B}'" in failed.error
    assert not stopped(identity(theirs.pid))


@pytest.mark.parametrize(
    "config",
    [
        llmd.BackendConfig(direct_memory=llmd.DirectMemoryBackendConfig()),
        llmd.BackendConfig(memory_regions=llmd.MemoryRegionsBackendConfig(snapshot_name="s")),
    ],
    ids=["direct_memory", "memory_regions"],
)
async def test_backends_that_are_not_offered_fail_with_a_text(tmp_path: Path, config: llmd.BackendConfig) -> None:
    async with calling(tmp_path, device()) as caller:
        failed = await caller.ended(await caller.snapshot("a", backend_config=config))
        assert "is not offered here" in failed.error
        await caller.done(await caller.snapshot("a"))


# -------------------------------------------------------------------------------- engines


@asynccontextmanager
async def engine(folder: Path) -> AsyncIterator[tuple[str, Path, subprocess.Popen[str]]]:
    """An engine in a process of its own: its address, and the file in which it says what it holds."""
    figures = folder / "figures.json"
    command = [sys.executable, "-m", "tests.engine_server", str(figures)]
    made = subprocess.Popen(command, cwd=ROOT, text=True)  # noqa: ASYNC220  it returns at once
    with made as process:
        try:
            await until(figures.exists, "the engine serves")
            yield json.loads(figures.read_text())["url"], figures, process
        finally:
            process.kill()


def endpoint(*endpoints: str, **more: Any) -> llmd.BackendConfig:
    values: dict[str, Any] = {"app": llmd.APP_VLLM, "endpoints": endpoints} | more
    return llmd.BackendConfig(app_endpoint=llmd.AppEndpointConfig(**values))


async def test_an_engine_that_is_known_by_its_address_is_put_to_sleep(tmp_path: Path) -> None:
    asked: list[Sequence[int]] = []
    async with engine(tmp_path) as (url, figures, process):

        def holder(pids: Sequence[int]) -> Callable[[], int]:
            asked.append(pids)
            return lambda: int(json.loads(figures.read_text())["held_bytes"])

        config = Config(listen=f"unix:{tmp_path}/a.sock", state="")
        async with serve(config, holder=holder) as running, client(running.address) as caller:
            parked = await caller.done(await caller.snapshot("a", backend_config=endpoint(url)))
            assert parked.snapshot_device_bytes > 0
            assert await caller.states() == {"a": "SAVED"}
            assert json.loads(figures.read_text())["held_bytes"] == 0
            await caller.done(await caller.restore("a", backend_config=endpoint(url)))
            assert await caller.states() == {"a": "RUNNING"}
            assert (await caller.carry(pb.KIND_PARK, 1)).HasField("done")
            await until(lambda: _states(caller, {"a": "SAVED"}), "its memory is free")
            assert (await caller.carry(pb.KIND_DISCARD, 2)).HasField("done")
            assert await anyio.to_thread.run_sync(process.wait, PATIENCE_S) is not None
    assert asked == [[process.pid]]


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (endpoint("http://127.0.0.1:9"), "no process of this host listens"),
        (endpoint("http://192.0.2.1:80"), "no process of this host listens"),
        (endpoint(), "no process of this host listens"),
        (endpoint("nonsense"), "no process of this host listens"),
    ],
)
async def test_an_engine_that_is_not_here_fails_the_operation(
    tmp_path: Path, config: llmd.BackendConfig, text: str
) -> None:
    async with calling(tmp_path, device()) as caller:
        failed = await caller.ended(await caller.snapshot("a", backend_config=config))
    assert text in failed.error


async def test_an_engine_whose_memory_cannot_be_seen_is_not_believed(tmp_path: Path) -> None:
    async with engine(tmp_path) as (url, _, _), calling(tmp_path, device()) as caller:
        failed = await caller.ended(await caller.snapshot("a", backend_config=endpoint(url)))
    assert "cannot be seen here" in failed.error or "NVML" in failed.error


@pytest.mark.parametrize(
    ("more", "text"), [({"app": llmd.APP_UNSPECIFIED}, "APP_VLLM or APP_SGLANG"), ({"tags": ["weights"]}, "as a whole")]
)
async def test_an_engine_of_a_wrong_config_fails_the_operation(tmp_path: Path, more: dict[str, Any], text: str) -> None:
    config = Config(listen=f"unix:{tmp_path}/a.sock", state="")
    async with (
        engine(tmp_path) as (url, _, _),
        serve(config, holder=lambda pids: lambda: 1) as running,
        client(running.address) as caller,
    ):
        failed = await caller.ended(await caller.snapshot("a", backend_config=endpoint(url, **more)))
    assert text in failed.error


def test_who_listens_on_a_port_is_found() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        (found,) = listeners_of(f"http://127.0.0.1:{port}")
        assert found == os.getpid()
    assert not listeners_of(f"http://127.0.0.1:{port}")
    assert not listeners_of("http://[::1")


# -------------------------------------------------------------------------------- workloads


CHANNEL = llmd.BackendConfig(app_channel=llmd.AppChannelConfig())


class Workload:
    """A process that parks itself, spoken by hand."""

    def __init__(self, call: Any) -> None:
        self.call = call
        self.obeyed: list[llmd.AgentCommand] = []

    async def register(self, job: str = "a", group: str = "g", **capabilities: Any) -> None:
        said = llmd.WorkloadCapabilities(**capabilities)
        register = llmd.RegisterWorkload(job_id=job, group=group, capabilities=said)
        await self.call.write(llmd.WorkloadMessage(register=register))

    async def hear(self) -> llmd.AgentCommand:
        with anyio.fail_after(PATIENCE_S):
            command: llmd.AgentCommand = await self.call.read()
        assert isinstance(command, llmd.AgentCommand), command
        self.obeyed.append(command)
        return command

    async def answer(self, command: llmd.AgentCommand, error: str = "", **changes: Any) -> None:
        values: dict[str, Any] = {"command_id": command.command_id, "ok": not error, "error": error} | changes
        await self.call.write(llmd.WorkloadMessage(result=llmd.CommandResult(**values)))

    async def obey(self, error: str = "") -> llmd.AgentCommand:
        command = await self.hear()
        await self.answer(command, error)
        return command

    async def status(self) -> tuple[grpc.StatusCode, str]:
        with anyio.fail_after(PATIENCE_S):
            with suppress(grpc.aio.AioRpcError):
                await self.call.read()
            return await self.call.code(), await self.call.details()


def open_stream(caller: Client) -> Workload:
    method: Any = caller.channel.stream_stream(
        LLMD + "WorkloadChannel", llmd.WorkloadMessage.SerializeToString, llmd.AgentCommand.FromString
    )
    return Workload(method())


async def here(caller: Client, job: str = "a") -> None:
    async def registered() -> bool:
        return job in await caller.states()

    await until(registered, "the workload is registered")


async def test_a_workload_is_told_to_park_and_to_come_back(tmp_path: Path) -> None:
    async with calling(tmp_path) as caller:
        workload = open_stream(caller)
        await workload.register(tags=["weights"])
        await here(caller)
        config = llmd.BackendConfig(app_channel=llmd.AppChannelConfig(tags=["weights"]))
        id = await caller.snapshot("a", backend_config=config)
        command = await workload.hear()
        assert command.snapshot.mode == llmd.SUSPEND_MODE_OFFLOAD
        assert list(command.snapshot.tags) == ["weights"]
        assert (await caller.operation(id)).status == llmd.OPERATION_STATUS_PENDING
        await workload.answer(command, command_id="another")
        assert (await caller.operation(id)).status == llmd.OPERATION_STATUS_PENDING
        await workload.answer(command)
        await caller.done(id)
        assert await caller.states() == {"a": "SAVED"}
        id = await caller.restore("a", backend_config=config)
        assert list((await workload.obey()).restore.tags) == ["weights"]
        await caller.done(id)
        assert await caller.states() == {"a": "RUNNING"}


async def test_our_own_orders_reach_a_workload_too_each_once(tmp_path: Path) -> None:
    async with calling(tmp_path) as caller, anyio.create_task_group() as tasks:
        workload = open_stream(caller)
        await workload.register(default_mode=llmd.SUSPEND_MODE_DISCARD)
        await here(caller)
        tasks.start_soon(caller.carry, pb.KIND_PARK, 1)
        assert (await workload.obey()).snapshot.mode == llmd.SUSPEND_MODE_DISCARD
        assert (await caller.carry(pb.KIND_PARK, 1)).HasField("done")
        assert (await caller.carry(pb.KIND_PARK, 2)).HasField("done")
        tasks.start_soon(caller.carry, pb.KIND_RESTORE, 3)
        assert (await workload.obey()).HasField("restore")
        assert (await caller.carry(pb.KIND_RESTORE, 4)).HasField("done")
    assert len(workload.obeyed) == 2


async def test_the_mode_asked_for_goes_before_the_workloads_own(tmp_path: Path) -> None:
    own, both = llmd.SUSPEND_MODE_UNSPECIFIED, [llmd.SUSPEND_MODE_OFFLOAD, llmd.SUSPEND_MODE_DISCARD]
    async with calling(tmp_path) as caller:
        workload = open_stream(caller)
        await workload.register(supported_modes=both, default_mode=llmd.SUSPEND_MODE_DISCARD)
        await here(caller)
        for asked, sent in ((both[0], both[0]), (own, both[1])):
            config = llmd.BackendConfig(app_channel=llmd.AppChannelConfig(mode=asked))
            id = await caller.snapshot("a", backend_config=config)
            assert (await workload.obey()).snapshot.mode == sent
            await caller.done(id)
            id = await caller.restore("a", backend_config=config)
            await workload.obey()
            await caller.done(id)


async def test_a_mode_that_the_workload_does_not_support_fails_before_anything_is_sent(tmp_path: Path) -> None:
    async with calling(tmp_path) as caller:
        workload = open_stream(caller)
        await workload.register(supported_modes=[llmd.SUSPEND_MODE_OFFLOAD])
        await here(caller)
        config = llmd.BackendConfig(app_channel=llmd.AppChannelConfig(mode=llmd.SUSPEND_MODE_DISCARD))
        failed = await caller.ended(await caller.snapshot("a", backend_config=config))
        assert "does not support SUSPEND_MODE_DISCARD" in failed.error
        id = await caller.snapshot("a", backend_config=CHANNEL)
        assert (await workload.obey()).HasField("snapshot")
        await caller.done(id)


async def test_without_a_workload_the_operation_fails_at_once_and_says_so(tmp_path: Path) -> None:
    async with calling(tmp_path) as caller:
        failed = await caller.ended(await caller.snapshot("a", backend_config=CHANNEL))
    assert "no workload on the channel" in failed.error


async def test_a_workload_that_fails_says_why(tmp_path: Path) -> None:
    async with calling(tmp_path) as caller:
        workload = open_stream(caller)
        await workload.register()
        await here(caller)
        id = await caller.snapshot("a", backend_config=CHANNEL)
        await workload.obey(error="out of host memory")
        assert "out of host memory" in (await caller.ended(id)).error
        assert await caller.states() == {"a": "RUNNING"}


async def test_a_stream_that_ends_fails_what_it_was_told_and_it_is_not_told_again(tmp_path: Path) -> None:
    async with calling(tmp_path) as caller:
        workload = open_stream(caller)
        await workload.register()
        await here(caller)
        id = await caller.snapshot("a", backend_config=CHANNEL)
        await workload.hear()
        workload.call.cancel()
        assert "has ended" in (await caller.ended(id)).error
        again = open_stream(caller)
        await again.register()
        await here(caller)
        id = await caller.snapshot("a", backend_config=CHANNEL)
        await again.obey()
        await caller.done(id)


async def test_registering_again_replaces_the_earlier_stream(tmp_path: Path) -> None:
    async with calling(tmp_path) as caller:
        first = open_stream(caller)
        await first.register()
        await here(caller)
        id = await caller.snapshot("a", backend_config=CHANNEL)
        await first.hear()
        second = open_stream(caller)
        await second.register()
        code, text = await first.status()
        assert code is not grpc.StatusCode.OK
        assert "registered again" in text
        assert "registered again" in (await caller.ended(id)).error
        id = await caller.snapshot("a", backend_config=CHANNEL)
        await second.obey()
        await caller.done(id)


async def test_a_parked_workload_whose_stream_broke_comes_back_over_the_next_one(tmp_path: Path) -> None:
    async with calling(tmp_path) as caller, anyio.create_task_group() as tasks:
        workload = open_stream(caller)
        await workload.register()
        await here(caller)
        tasks.start_soon(caller.carry, pb.KIND_PARK, 1)
        await workload.obey()
        assert (await caller.carry(pb.KIND_PARK, 1)).HasField("done")
        workload.call.cancel()

        async def refused() -> bool:
            return "no workload" in (await caller.carry(pb.KIND_RESTORE, 2)).failure.text

        await until(refused, "the agent notices the end of the stream")
        assert await caller.states() == {"a": "SAVED"}
        again = open_stream(caller)
        await again.register()
        tasks.start_soon(again.obey)

        async def restored() -> bool:
            return (await caller.carry(pb.KIND_RESTORE, 3 + len(again.obeyed))).HasField("done")

        await until(restored, "the workload is back")


@pytest.mark.parametrize(
    "first",
    [
        llmd.WorkloadMessage(),
        llmd.WorkloadMessage(result=llmd.CommandResult(command_id="1")),
        llmd.WorkloadMessage(register=llmd.RegisterWorkload(job_id="")),
        llmd.WorkloadMessage(register=llmd.RegisterWorkload(job_id="x" * 300)),
    ],
    ids=["nothing", "a result", "no job", "a long job"],
)
async def test_the_first_message_must_be_a_registration(tmp_path: Path, first: llmd.WorkloadMessage) -> None:
    async with calling(tmp_path) as caller:
        workload = open_stream(caller)
        await workload.call.write(first)
        code, _ = await workload.status()
        assert code is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_workload_that_never_answers_fails_in_time_and_can_be_discarded(tmp_path: Path) -> None:
    async with calling(tmp_path, limits={"move_timeout_s": 0.2}) as caller:
        workload = open_stream(caller)
        await workload.register(supported_modes=[llmd.SUSPEND_MODE_DISCARD], default_mode=llmd.SUSPEND_MODE_DISCARD)
        await here(caller)
        failed = await caller.ended(await caller.snapshot("a", backend_config=CHANNEL))
        assert failed.status == llmd.OPERATION_STATUS_FAILED
        await workload.hear()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(workload.obey)
            assert (await caller.carry(pb.KIND_DISCARD, 1)).HasField("done")


async def test_too_many_workloads_are_refused(tmp_path: Path) -> None:
    async with calling(tmp_path, limits={"workloads": 1}) as caller:
        first, second = open_stream(caller), open_stream(caller)
        await first.register("a")
        await here(caller)
        await second.register("b")
        code, text = await second.status()
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "limits.workloads" in text


# -------------------------------------------------------------------------------- devices


class Library:
    """What `pynvml` would say on a host of two devices."""

    NVMLError = type("NVMLError", (Exception,), {})
    NVMLError_NotFound = type("NVMLError_NotFound", (NVMLError,), {})
    NVMLError_InvalidArgument = type("NVMLError_InvalidArgument", (NVMLError,), {})
    NVMLLibraryMismatchError = type("NVMLLibraryMismatchError", (NVMLError,), {})

    def __getattr__(self, name: str) -> Any:
        assert name.startswith("nvml")
        return lambda *_: None

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        if handle == 1:
            raise self.NVMLError("it has fallen off the bus")
        return type("Memory", (), {"total": 100, "used": 30, "free": 70})


async def test_the_figures_of_the_devices_are_told_where_they_are_known(tmp_path: Path) -> None:
    config = Config(listen=f"unix:{tmp_path}/a.sock", state="")
    async with (
        serve(config, backends={"": FakeBackend()}, nvml=Nvml(Library())) as running,
        client(running.address) as caller,
    ):
        said = await caller.call(LLMD + "Status", llmd.StatusRequest())
        (figure,) = said.accelerator_statuses
        assert (figure.id, figure.memory_used_bytes, figure.memory_total_bytes) == ("0", 30, 100)
        (own,) = (await caller.describe()).devices
        assert (own.id, own.used_bytes, own.total_bytes) == ("0", 30, 100)
