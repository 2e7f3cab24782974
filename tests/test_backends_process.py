"""The process backend keeps the contract of backends on real process trees, and its jobs do not disturb each other."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from tests.process_driver import ModelDriver
from tests.process_trees import Job as Tree
from tests.process_trees import ProcessRig, closing, identity, jobs, python
from tsched import Group, Job, Scheduler
from tsched.backends import Order, Presence
from tsched.backends.process import Identity, Limits, ProcessBackend, SignalFreezer, State
from tsched.backends.process.cgroup import CgroupFreezer, cgroup_of, mount_point, sweep
from tsched.backends.process.freezer import Freezer
from tsched.backends.process.identity import lives, stopped
from tsched.backends.process.tree import living_tree
from tsched.errors import BackendError, Invalid, MissingDriver, ProcessGone
from tsched.model import SECOND_US
from tsched.testing.backend_suite import check_backend

pytestmark = pytest.mark.anyio
MakeFreezer = Callable[[Sequence[Identity]], Freezer]


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def in_a_cgroup(tree: Sequence[Identity]) -> Freezer:
    try:
        return CgroupFreezer(tree)
    except (OSError, BackendError) as error:
        pytest.skip(f"no control group can be made here: {error}")


def by_signals(tree: Sequence[Identity]) -> Freezer:
    return SignalFreezer()


@pytest.fixture(params=[by_signals, in_a_cgroup])
def freezer(request: pytest.FixtureRequest) -> MakeFreezer:
    make: MakeFreezer = request.param
    return make


@pytest.fixture(scope="module", autouse=True)
def no_group_is_left() -> Iterator[None]:
    yield
    own = cgroup_of(os.getpid())
    if own is not None:
        sweep(mount_point() / own.lstrip("/"))


@pytest.fixture
def job() -> Iterator[Tree]:
    with jobs() as (made,):
        yield made


def assert_that(fact: bool) -> None:
    assert fact


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(20_000):
        if condition():
            return
        await anyio.sleep(0.001)
    pytest.fail("it never came to that")


def order(op: int, job: str = "a", token: int = 1) -> Order:
    return Order(op, "g", "0", job, token)


async def probe(backend: ProcessBackend, job: str = "a", deadline_us: int = 10 * SECOND_US) -> Presence:
    return await backend.probe("g", "0", job, deadline_us=deadline_us)


@pytest.fixture
def stubborn(tmp_path: Path) -> Iterator[int]:
    """A process that no signal stops: it waits in the kernel for its child, which has its memory."""
    source, program = Path(__file__).parent / "libcuda" / "vfork.c", tmp_path / "vfork"
    if shutil.which("gcc") is None:
        pytest.skip("gcc is needed to build a process that cannot be stopped")
    subprocess.run(["gcc", "-o", program, source], check=True)
    with subprocess.Popen([program], start_new_session=True) as parent:
        while len(living_tree([identity(parent.pid)])) < 2:
            time.sleep(0.001)
        yield parent.pid
        with suppress(ProcessLookupError):
            os.killpg(parent.pid, 9)


async def test_it_keeps_the_contract_with_real_process_trees(freezer: MakeFreezer) -> None:
    rigs: list[ProcessRig] = []

    def make() -> ProcessRig:
        rigs.append(ProcessRig(freezer=freezer))
        return rigs[-1]

    try:
        await check_backend(make)
    finally:
        for rig in rigs:
            rig.close()
    assert len(rigs) > 5


async def test_a_parked_job_stands_still_and_is_not_taken_for_dead(freezer: MakeFreezer, job: Tree) -> None:
    backend = ProcessBackend(freezer=freezer)
    backend.register("g", "0", "a", [job.pid])
    state = job.ask()
    await backend.park(order(1))
    with pytest.raises(BackendError, match="does not answer"):
        job.ask()
    seen = await probe(backend)
    assert seen.alive
    assert seen.parked_bytes > 0
    assert seen.resident_bytes == 0
    await backend.restore(order(2))
    assert job.answer(10) == state
    seen = await probe(backend)
    assert seen.resident_bytes > 0
    assert seen.parked_bytes == 0
    assert (await backend.sizes("g", "0", "a")).save_bytes == seen.resident_bytes


async def test_a_restarted_backend_finds_a_parked_tree_parked_and_thaws_it(freezer: MakeFreezer, job: Tree) -> None:
    first = ProcessBackend(freezer=freezer)
    first.register("g", "0", "a", [job.pid])
    await first.park(order(1))
    second = ProcessBackend()
    second.register("g", "0", "a", [job.pid])
    seen = await probe(second)
    assert seen.resident_bytes == 0
    assert seen.parked_bytes > 0
    await second.restore(order(1))
    assert job.ask(patience_s=10)


async def test_a_park_of_a_job_that_ended_is_refused_and_faults_no_other(freezer: MakeFreezer) -> None:
    backend = ProcessBackend(freezer=freezer)
    with jobs(2) as (ended, other):
        backend.register("g", "0", "a", [ended.pid])
        backend.register("g", "0", "b", [other.pid])
        os.killpg(ended.pid, 9)  # nobody waits for it: it stays a zombie
        await until(lambda: not backend._targets["g", "0", "a"].members())
        with pytest.raises(ProcessGone, match="exited"):
            await backend.park(order(1))
        with pytest.raises(ProcessGone, match="exited"):
            await backend.restore(order(2))
        assert await probe(backend) == Presence(0, 0, alive=False)
        await backend.discard(order(3))
        await backend.park(order(1, "b"))
        await backend.restore(order(2, "b"))
        assert other.ask(patience_s=10)


async def test_a_process_that_exited_has_nothing_to_restore_and_the_rest_is_parked(freezer: MakeFreezer) -> None:
    backend = ProcessBackend(freezer=freezer)
    with jobs(2) as (ended, rest):
        backend.register("g", "0", "a", [ended.pid, rest.pid])
        ended.kill()
        await backend.park(order(1))
        assert (await probe(backend)).resident_bytes == 0
        await backend.restore(order(2))
        assert rest.ask(patience_s=10)


async def test_a_pid_that_was_given_out_again_is_no_process_of_the_job(job: Tree) -> None:
    here = identity(job.pid)
    backend = ProcessBackend(freezer=by_signals)
    backend.register("g", "0", "a", [job.pid])
    backend._targets["g", "0", "a"]._known = [Identity(here.pid, here.started - 1)]  # so an earlier owner of the pid
    with pytest.raises(ProcessGone):
        await backend.park(order(1))
    await backend.discard(order(2))
    assert job.ask(patience_s=10), "the stranger that has the pid now was stopped or killed"


async def test_discard_ends_a_running_and_a_frozen_tree(freezer: MakeFreezer) -> None:
    with jobs(2) as (running, frozen):
        backend = ProcessBackend(freezer=freezer)
        backend.register("g", "0", "a", [running.pid])
        backend.register("g", "0", "b", [frozen.pid])
        trees = [backend._targets["g", "0", name].members() for name in "ab"]
        assert [len(tree) for tree in trees] == [2, 2]
        await backend.park(order(1, "b"))
        for name, tree in zip("ab", trees, strict=True):
            await backend.discard(order(2, name))
            assert not any(map(lives, tree))
            assert await probe(backend, name) == Presence(0, 0, alive=False)
            with pytest.raises(ProcessGone):
                await backend.restore(order(3, name))


async def test_a_control_group_finds_orphans_and_is_removed_in_the_end() -> None:
    with closing(python("import os, time; print(os.fork() or 0, flush=True); time.sleep(600)")) as parent:
        await _check_orphan(parent)


async def _check_orphan(parent: subprocess.Popen[str]) -> None:
    backend = ProcessBackend(freezer=in_a_cgroup)
    assert parent.stdout is not None
    backend.register("g", "0", "a", [parent.pid])
    child = identity(max(int(parent.stdout.readline()), int(parent.stdout.readline())))
    target = backend._targets["g", "0", "a"]
    folder = target._freezer.folder if isinstance(target._freezer, CgroupFreezer) else Path()
    target._known = [identity(parent.pid)]  # the child has never been seen
    parent.kill()
    parent.wait()
    assert (await probe(backend)).alive
    await backend.park(order(1))
    await backend.discard(order(2))
    assert not lives(child)
    assert not folder.exists()


async def test_a_job_without_processes_is_refused_with_the_mend() -> None:
    backend = ProcessBackend()
    for move in (backend.park, backend.restore):
        with pytest.raises(BackendError, match=r"job 'a' has no processes on g/0: register"):
            await move(order(1 if move == backend.park else 2))
    await backend.discard(order(3))
    assert await probe(backend) == Presence()


async def test_a_second_order_to_restore_does_not_race_with_a_new_park(job: Tree) -> None:
    backend = ProcessBackend(freezer=by_signals)
    backend.register("g", "0", "a", [job.pid])
    await backend.park(order(1))
    await backend.restore(order(2))
    await backend.park(order(3, token=2))
    with pytest.raises(BackendError, match="stale"):
        await backend.restore(order(2))
    assert (await probe(backend)).resident_bytes == 0


async def test_what_cannot_be_frozen_in_time_goes_on(stubborn: int) -> None:
    backend = ProcessBackend(freezer=by_signals, limits=Limits(freeze_s=0.3))
    backend.register("g", "0", "a", [stubborn])
    tree = backend._targets["g", "0", "a"].members()
    assert len(tree) == 2
    with pytest.raises(BackendError, match=f"process {stubborn} has not stopped in time"):
        await backend.park(order(1))
    assert not any(map(stopped, tree))
    await backend.discard(order(2))
    assert not any(map(lives, tree))


async def test_more_processes_of_a_job_join_those_that_are_there(freezer: MakeFreezer) -> None:
    backend = ProcessBackend(freezer=freezer)
    with jobs(2) as (first, second):
        backend.register("g", "0", "a", [first.pid])
        backend.register("g", "0", "a", [second.pid])
        await backend.park(order(1))
        for job in (first, second):
            with pytest.raises(BackendError, match="does not answer"):
                job.ask()
        await backend.restore(order(2))
        backend.unregister("g", "0", "a")
        assert await probe(backend) == Presence()


async def test_a_process_of_one_job_cannot_be_registered_for_another(job: Tree) -> None:
    backend = ProcessBackend()
    backend.register("g", "0", "a", [job.pid])
    child = backend._targets["g", "0", "a"].members()[1]
    with pytest.raises(Invalid, match="belongs to job 'a'"):
        backend.register("g", "0", "b", [child.pid])
    assert await probe(backend, "b") == Presence()


@pytest.mark.skipif(Path("/proc/driver/nvidia").exists(), reason="this machine has a driver")
async def test_a_process_on_a_device_needs_a_driver_and_goes_on_without(job: Tree) -> None:
    backend = ProcessBackend(gpu_pids=lambda: {job.pid: 1 << 20})
    backend.register("g", "0", "a", [job.pid])
    with pytest.raises(MissingDriver, match=r"driver of at least 570 .* persistence mode .*tsched\[nvidia\]"):
        await backend.park(order(1))
    assert job.ask(patience_s=10)
    assert (await probe(backend)).resident_bytes == 1 << 20


async def test_a_process_on_a_device_that_is_not_listed_is_not_frozen_in_its_place(
    job: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a container whose process numbers are not the host's, NVML does not know it; its memory would stay."""
    monkeypatch.setattr("tsched.backends.process.target.contexts_by_open_files", lambda: {job.pid: 0})
    backend = ProcessBackend(gpu_pids=dict)
    backend.register("g", "0", "a", [job.pid])
    with pytest.raises(BackendError, match=rf"processes {job.pid} use an NVIDIA device.*--pid=host"):
        await backend.park(Order(1, "g", "0", "a", 1))
    assert not stopped(identity(job.pid))
    assert (await backend.probe("g", "0", "a", deadline_us=0)).resident_bytes


async def test_only_processes_on_a_device_are_suspended(job: Tree) -> None:
    driver, memory = ModelDriver([job.pid]), {job.pid: 300}
    driver.faults["checkpoint", job.pid] = memory.clear
    backend = ProcessBackend(driver=driver, gpu_pids=lambda: memory)
    backend.register("g", "0", "a", [job.pid])
    await backend.park(order(1))
    assert driver.calls == [("lock", job.pid), ("checkpoint", job.pid)]
    assert await probe(backend) == Presence(0, 300)
    assert job.ask(patience_s=10), "the rest of the tree goes on"


async def test_a_restore_of_what_the_driver_has_lost_sight_of_is_no_success(job: Tree) -> None:
    driver, memory = ModelDriver([job.pid]), {job.pid: 300}
    driver.faults["checkpoint", job.pid] = memory.clear
    backend = ProcessBackend(driver=driver, gpu_pids=lambda: memory)
    backend.register("g", "0", "a", [job.pid])
    await backend.park(order(1))
    driver.states.clear()
    with pytest.raises(BackendError, match=f"process {job.pid} is unknown to the driver"):
        await backend.restore(order(2))


async def test_memory_that_is_free_only_later_is_waited_for(job: Tree) -> None:
    driver, memory = ModelDriver([job.pid]), {job.pid: 300}
    backend = ProcessBackend(driver=driver, gpu_pids=lambda: memory)
    backend.register("g", "0", "a", [job.pid])
    await backend.park(order(1))
    assert await probe(backend, deadline_us=50_000) == Presence(300, 300), "acknowledged, but the memory is held"
    threading.Timer(0.2, memory.clear).start()
    assert await probe(backend) == Presence(0, 300)


async def test_memory_of_a_killed_process_counts_until_the_device_has_let_go(job: Tree) -> None:
    driver, memory = ModelDriver([job.pid]), {job.pid: 300}
    backend = ProcessBackend(driver=driver, gpu_pids=lambda: memory)
    backend.register("g", "0", "a", [job.pid])
    await backend.park(order(1))
    await backend.restore(order(2))
    await backend.discard(order(3))
    job.parent.wait()
    assert await probe(backend, deadline_us=0) == Presence(300, 0, alive=False)
    memory.clear()
    assert await probe(backend) == Presence(0, 0, alive=False)


async def test_a_restore_that_blocks_ends_in_time_and_leaves_the_job_parked(job: Tree) -> None:
    gate = threading.Event()
    driver = ModelDriver([job.pid], faults={("restore", job.pid): lambda: assert_that(gate.wait(20))})
    backend = ProcessBackend(driver=driver, gpu_pids=dict, limits=Limits(restore_s=0.1))
    driver.states[job.pid] = State.CHECKPOINTED
    backend.register("g", "0", "a", [job.pid])
    with pytest.raises(BackendError, match=r"restore of process \d+ did not end within 0.1 s"):
        await backend.restore(order(1))
    assert (await probe(backend)).alive
    gate.set()
    await until(lambda: not backend._targets["g", "0", "a"]._calls.busy(identity(job.pid)))
    assert driver.states[job.pid] is State.CHECKPOINTED, "what came back too late does not stay"
    assert (await probe(backend)).resident_bytes == 0


async def test_discard_does_not_wait_for_a_call_that_blocks_until_the_process_ends(job: Tree) -> None:
    def until_killed() -> None:
        job.parent.wait(20)

    driver = ModelDriver([job.pid], faults={("restore", job.pid): until_killed})
    driver.states[job.pid] = State.CHECKPOINTED
    backend = ProcessBackend(driver=driver, gpu_pids=dict)
    backend.register("g", "0", "a", [job.pid])
    async with anyio.create_task_group() as tasks:

        async def restore() -> None:
            with pytest.raises(BackendError):
                await backend.restore(order(1))

        tasks.start_soon(restore)
        await until(lambda: bool(driver.calls))
        with anyio.fail_after(10):
            await backend.discard(order(2))
    assert not (await probe(backend)).alive


async def test_processes_are_found_by_the_device_they_use() -> None:
    with (
        jobs(3) as (mine, other, strange),
        closing(python("input()", environment={"TIMESLICE_JOB_ID": "c"})) as foreign,
    ):
        on_device = dict.fromkeys((mine.pid, other.pid, foreign.pid, os.getpid()), 1)
        backend = ProcessBackend(gpu_pids=lambda: on_device)
        backend.register("g", "0", "b", [other.pid])
        backend.register("g", "0", "a")
        found = {process.pid for process in backend._targets["g", "0", "a"].members()}
        assert mine.pid in found
        assert not {other.pid, foreign.pid, strange.pid, os.getpid()} & found
        backend.register("g", "0", "c")
        assert [process.pid for process in backend._targets["g", "0", "c"].members()] == [foreign.pid]


async def test_without_a_process_on_a_device_there_is_nothing_to_find() -> None:
    with pytest.raises(Invalid, match="no pids"):
        ProcessBackend(gpu_pids=dict).register("g", "0", "a")


async def test_two_jobs_take_turns_under_the_live_scheduler_and_only_the_holder_runs(freezer: MakeFreezer) -> None:
    backend = ProcessBackend(freezer=freezer)
    with jobs(2) as (a, b):
        async with Scheduler([Group("g", capacity_bytes=1)], backend=backend) as sched:
            for name, job in (("a", a), ("b", b)):
                backend.register("g", "0", name, [job.pid])
                await sched.add_job(Job(name, state_bytes={"g": 1}))
            async with sched.hold("a", "g"):
                state = a.ask(patience_s=10)
            async with sched.hold("b", "g"):
                assert b.ask(patience_s=10)
                with pytest.raises(BackendError, match="does not answer"):
                    a.ask()
            async with sched.hold("a", "g") as lease:
                assert lease.restored
                assert a.answer(10) == state
                with pytest.raises(BackendError, match="does not answer"):
                    b.ask()
