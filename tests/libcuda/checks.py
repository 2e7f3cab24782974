"""What the real binding and the backend on it must do with the stand-in driver.

`python -m tests.libcuda.checks NAME LOOP` runs one check, in a process that has loaded the stand-in: a process loads
one libcuda, and the one that runs the tests must not be it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import anyio
import pytest

from tests.process_trees import Job, ProcessRig, identity, jobs
from tsched.backends import Order, Presence
from tsched.backends.process import Limits, ProcessBackend, SignalFreezer, State, find_driver
from tsched.backends.process.binding import BindingDriver
from tsched.backends.process.tree import living_tree
from tsched.errors import BackendError, DeviceMemoryFull, HostMemoryFull, MissingDriver, ProcessGone
from tsched.model import SECOND_US
from tsched.testing.backend_suite import check_backend

FOLDER = Path(os.environ.get("TSCHED_LIBCUDA", "/nonexistent"))
OUT_OF_MEMORY, NOT_SUPPORTED, NO_DEVICE = 2, 801, 100
RANK_BYTES = 1000
ALL = {"running": "0", "locked": "1", "checkpointed": "2"}


def on_device() -> dict[int, int]:
    """What NVML would list: processes whose memory is on the device."""
    states = {int(file.name): file.read_text().strip() for file in FOLDER.iterdir() if file.name.isdecimal()}
    return {pid: RANK_BYTES for pid, state in states.items() if state in "01" and Path(f"/proc/{pid}").exists()}


def ranks_of(job: Job) -> list[int]:
    """The job's processes, each of which gets a context."""
    pids = [process.pid for process in living_tree([identity(job.pid)])]
    for pid in pids:
        (FOLDER / str(pid)).write_text("0")
    return pids


def states(pids: list[int]) -> set[str]:
    return {(FOLDER / str(pid)).read_text().strip() for pid in pids}


def fault(step: str, pid: int, code: int, wait_ms: int = 0) -> None:
    (FOLDER / f"{step}.{pid}").write_text(f"{code} {wait_ms}")


def mend(step: str, pid: int) -> None:
    (FOLDER / f"{step}.{pid}").unlink()


def steps(pids: list[int]) -> list[str]:
    """The steps that were called for these processes, in order."""
    calls = [line.split() for line in (FOLDER / "calls").read_text().splitlines()]
    return [step for step, pid in calls if int(pid) in pids]


def order(op: int, job: str = "a") -> Order:
    return Order(op, "g", "0", job, 1)


async def probe(backend: ProcessBackend, job: str = "a") -> Presence:
    return await backend.probe("g", "0", job, deadline_us=10 * SECOND_US)


@contextmanager
def two_jobs(limits: Limits | None = None) -> Iterator[tuple[ProcessBackend, list[int], list[int]]]:
    """Jobs a and b, of two ranks each, on a backend that finds its driver itself."""
    backend = ProcessBackend(gpu_pids=on_device, limits=limits)
    with jobs(2) as (a, b):
        ranks = [ranks_of(a), ranks_of(b)]
        for name, job in zip("ab", (a, b), strict=True):
            backend.register("g", "0", name, [job.pid])
        yield backend, ranks[0], ranks[1]


class DeviceRig(ProcessRig):
    """Jobs whose state can be used only while all their processes run."""

    def __init__(self) -> None:
        super().__init__(gpu_pids=on_device, freezer=lambda tree: SignalFreezer())
        self.ranks: dict[tuple[str, str, str], list[int]] = {}

    def allocate(self, group: str, node: str, job: str, size_bytes: int) -> None:
        super().allocate(group, node, job, size_bytes)
        self.ranks[group, node, job] = ranks_of(self._here[group, node, job])

    def contents(self, group: str, node: str, job: str) -> bytes:
        if states(self.ranks[group, node, job]) != {ALL["running"]}:
            raise BackendError(f"job {job!r} is not on the device")
        return super().contents(group, node, job)


async def the_binding_carries_a_process_through_every_state() -> None:
    driver, pid = BindingDriver(), 77
    assert driver.state(pid) is None
    (FOLDER / str(pid)).write_text("0")
    for step, state in (("checkpoint", State.CHECKPOINTED), ("restore", State.LOCKED), ("unlock", State.RUNNING)):
        if step == "checkpoint":
            assert driver.state(pid) is State.RUNNING
            driver.lock(pid, 1)
            assert driver.state(pid) is State.LOCKED
        getattr(driver, step)(pid)
        assert driver.state(pid) is state
    for value, state in (("3", State.FAILED), ("4", State.CHECKPOINTING), ("5", State.RESTORING)):
        (FOLDER / str(pid)).write_text(value)
        assert driver.state(pid) is state


async def the_binding_is_found_first() -> None:
    assert isinstance(find_driver(), BindingDriver)


async def an_old_driver_is_a_missing_driver() -> None:
    os.environ["TSCHED_LIBCUDA_VERSION"] = "12070"
    with pytest.raises(MissingDriver, match=r"for CUDA 12.7; install .*570"):
        BindingDriver()


async def a_driver_without_a_device_is_a_missing_driver() -> None:
    os.environ["TSCHED_LIBCUDA_INIT"] = str(NO_DEVICE)
    with pytest.raises(MissingDriver, match="does not start: CUDA_ERROR_NO_DEVICE"):
        BindingDriver()


async def a_driver_without_checkpoints_is_a_missing_driver() -> None:
    (FOLDER / "77").write_text("0")
    fault("lock", 77, NOT_SUPPORTED)
    with pytest.raises(MissingDriver, match=r"lock of process 77: .*not supported .*570"):
        BindingDriver().lock(77, 1)


async def the_contract_is_kept() -> None:
    with ExitStack() as open_jobs:

        def make() -> DeviceRig:
            rig = DeviceRig()
            open_jobs.callback(rig.close)
            return rig

        await check_backend(make)
    assert "checkpoint" in (FOLDER / "calls").read_text()


async def all_ranks_are_locked_first() -> None:
    with two_jobs() as (backend, ranks, _):
        await backend.park(order(1))
        assert steps(ranks) == ["lock"] * 2 + ["checkpoint"] * 2
        assert await probe(backend) == Presence(0, 2 * RANK_BYTES)
        await backend.restore(order(2))
        assert steps(ranks)[4:] == ["restore"] * 2 + ["unlock"] * 2
        assert await probe(backend) == Presence(2 * RANK_BYTES, 0)


async def a_lock_that_times_out_unlocks_the_others() -> None:
    with two_jobs(Limits(lock_s=1)) as (backend, ranks, others):
        fault("lock", ranks[1], 0, wait_ms=5_000)
        with pytest.raises(BackendError, match=f"lock of process {ranks[1]}: CUDA_ERROR_NOT_READY"):
            await backend.park(order(1))
        assert states(ranks) == {ALL["running"]}
        assert "checkpoint" not in steps(ranks)
        await backend.park(order(1, "b"))
        assert states(others) == {ALL["checkpointed"]}
        mend("lock", ranks[1])
        await backend.park(order(2))
        assert states(ranks) == {ALL["checkpointed"]}


async def a_checkpoint_that_fails_brings_back_the_others() -> None:
    with two_jobs() as (backend, ranks, _):
        fault("checkpoint", ranks[1], OUT_OF_MEMORY)
        with pytest.raises(HostMemoryFull, match=f"checkpoint of process {ranks[1]}"):
            await backend.park(order(1))
        assert states(ranks) == {ALL["running"]}
        assert await probe(backend) == Presence(2 * RANK_BYTES, 0)


async def a_restore_without_room_leaves_the_job_parked_and_others_alone() -> None:
    with two_jobs() as (backend, ranks, others):
        await backend.park(order(1))
        fault("restore", ranks[0], OUT_OF_MEMORY)
        with pytest.raises(DeviceMemoryFull, match=f"restore of process {ranks[0]}"):
            await backend.restore(order(2))
        assert states(ranks) == {ALL["checkpointed"]}
        assert await probe(backend) == Presence(0, 2 * RANK_BYTES)
        assert states(others) == {ALL["running"]}
        mend("restore", ranks[0])
        await backend.restore(order(3))
        assert states(ranks) == {ALL["running"]}


async def a_restore_that_blocks_is_bounded_and_taken_back() -> None:
    with two_jobs(Limits(restore_s=1)) as (backend, ranks, others):
        await backend.park(order(1))
        fault("restore", ranks[0], 0, wait_ms=2_500)
        with pytest.raises(BackendError, match="did not end within 1 s"):
            await backend.restore(order(2))
        await backend.park(order(1, "b"))
        await backend.restore(order(2, "b"))
        assert states(others) == {ALL["running"]}, "another job does not wait for it"
        mend("restore", ranks[0])
        await backend.park(order(3))  # waits for what is under way
        assert states(ranks) == {ALL["checkpointed"]}
        assert await probe(backend) == Presence(0, 2 * RANK_BYTES)


async def evicting_a_job_that_ended_faults_no_other() -> None:
    with two_jobs() as (backend, ranks, others):
        os.killpg(ranks[0], 9)
        with anyio.fail_after(20):
            while (await probe(backend)).alive:  # noqa: ASYNC110
                await anyio.sleep(0.001)
        with pytest.raises(ProcessGone):
            await backend.park(order(1))
        await backend.discard(order(2))
        await backend.park(order(1, "b"))
        await backend.restore(order(2, "b"))
        assert states(others) == {ALL["running"]}


async def a_rank_that_exits_while_parked_does_not_hinder_the_rest() -> None:
    with jobs(2) as (one, two):
        ranks, others = ranks_of(one), ranks_of(two)
        backend = ProcessBackend(gpu_pids=on_device)
        backend.register("g", "0", "a", [one.pid, two.pid])
        await backend.park(order(1))
        two.kill()
        await backend.restore(order(2))
        assert states(ranks) == {ALL["running"]}
        assert "restore" not in steps(others)


async def a_restarted_backend_finds_what_is_suspended() -> None:
    with two_jobs() as (first, ranks, _):
        await first.park(order(1))
        second = ProcessBackend(gpu_pids=on_device)
        second.register("g", "0", "a", [ranks[0]])
        seen = await probe(second)
        assert seen.resident_bytes == 0
        assert seen.parked_bytes > 0
        await second.restore(order(1))
        assert states(ranks) == {ALL["running"]}


CHECKS: dict[str, Callable[[], Awaitable[None]]] = {
    check.__name__: check
    for check in (
        the_binding_carries_a_process_through_every_state,
        the_binding_is_found_first,
        an_old_driver_is_a_missing_driver,
        a_driver_without_a_device_is_a_missing_driver,
        a_driver_without_checkpoints_is_a_missing_driver,
        the_contract_is_kept,
        all_ranks_are_locked_first,
        a_lock_that_times_out_unlocks_the_others,
        a_checkpoint_that_fails_brings_back_the_others,
        a_restore_without_room_leaves_the_job_parked_and_others_alone,
        a_restore_that_blocks_is_bounded_and_taken_back,
        evicting_a_job_that_ended_faults_no_other,
        a_rank_that_exits_while_parked_does_not_hinder_the_rest,
        a_restarted_backend_finds_what_is_suspended,
    )
}

if __name__ == "__main__":
    anyio.run(CHECKS[sys.argv[1]], backend=sys.argv[2])
