"""The worker's side: errors that say what to do, connections that come back, threads, forks and quiet ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import anyio
import grpc
import pytest

from tests.rpc_site import ROOT, Recorder, Site, site, until
from tsched import Group, Scheduler
from tsched.errors import (
    AcquireRefused,
    BackendError,
    ChannelClosed,
    DeviceMemoryFull,
    Invalid,
    LeaseLost,
    NeverFits,
    UnknownGroup,
    UnknownJob,
)
from tsched.rpc.hub import WorkerHub
from tsched.rpc.worker import Worker, WorkerLease

pytestmark = pytest.mark.anyio
T = TypeVar("T")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def aside(work: Callable[..., T], *arguments: Any, **named: Any) -> T:
    """Call what waits in a thread, so that the scheduler in this one goes on."""
    with anyio.fail_after(30):
        return await anyio.to_thread.run_sync(partial(work, *arguments, **named), abandon_on_cancel=True)


@asynccontextmanager
async def connected(here: Site, job: str = "a", **arguments: Any) -> AsyncIterator[Worker]:
    worker = await aside(Worker.connect, here.address, job=job, **{"group": "g", **arguments})
    try:
        yield worker
    finally:
        await aside(worker.close)


async def test_a_turn_by_hand_and_in_a_with_statement(tmp_path: Path) -> None:
    async with site(tmp_path) as here, connected(here) as worker:
        lease = await aside(worker.acquire, phase="train", estimate_s=3.0, remaining_s=30.0)
        assert (lease.job, lease.phase, lease.groups, dict(lease.tokens)) == ("a", "train", ("g",), {"g": 1})
        assert lease.held
        assert lease.waited_s >= 0
        await aside(worker.release, lease)
        assert not lease.held
        assert here.holder() is None

        def body() -> None:
            with worker.hold(phase="train") as inner:
                assert inner.held

        await aside(body)
        assert here.holder() is None


async def test_a_body_that_raises_gives_its_turn_back(tmp_path: Path) -> None:
    async with site(tmp_path) as here, connected(here) as worker:

        def body() -> None:
            with worker.hold():
                raise KeyError("mine")

        with pytest.raises(KeyError, match="mine"):
            await aside(body)
        await until(lambda: here.holder() is None, "the turn is given back")


async def test_a_turn_that_was_lost_in_the_body_is_said_after_it(tmp_path: Path) -> None:
    async with site(tmp_path, Group("g", max_hold_us=200_000)) as here, connected(here) as worker:
        leases: list[WorkerLease] = []

        def body() -> None:
            with worker.hold() as lease:
                leases.append(lease)
                while lease.lost_reason is None:
                    time.sleep(0.005)

        with pytest.raises(LeaseLost, match="longer than max_hold_us allows"):
            await aside(body)
        assert not leases[0].held


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ({"groups": "nowhere"}, UnknownGroup),
        ({"groups": ()}, AcquireRefused),
        ({"ttl_s": -1.0}, Invalid),
        ({"estimate_s": float("nan")}, Invalid),
        ({"request": -1}, Invalid),
        ({"phase": "x" * 300}, Invalid),
        ({"groups": ["g"] * 100}, Invalid),
        ({"groups": "x" * (1 << 20)}, Invalid),
        ({"within": 99}, AcquireRefused),
        ({"timeout_s": 0.0, "groups": "busy"}, AcquireRefused),
    ],
)
async def test_a_request_that_cannot_be_is_refused_by_its_own_error(
    tmp_path: Path, asked: dict[str, Any], error: type[Exception]
) -> None:
    async with (
        site(tmp_path, Group("g"), Group("busy")) as here,
        connected(here, "b", group="busy") as other,
        connected(here) as worker,
    ):
        await aside(other.acquire)
        with pytest.raises(error):
            await aside(worker.acquire, **asked)
        lease = await aside(worker.acquire)
        assert lease.held


async def test_a_state_that_never_fits_is_said_so(tmp_path: Path) -> None:
    async with site(tmp_path) as here, connected(here, state_bytes=1000) as worker:
        with pytest.raises(NeverFits):
            await aside(worker.acquire)


async def test_many_threads_take_turns_with_one_worker(tmp_path: Path) -> None:
    async with site(tmp_path) as here, connected(here) as worker:
        inside = 0
        tokens: list[int] = []

        def work() -> None:
            nonlocal inside
            for _ in range(10):
                with worker.hold() as lease:
                    inside += 1
                    assert inside == 1
                    tokens.append(lease.tokens["g"])
                    inside -= 1

        threads = [threading.Thread(target=work) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            await aside(thread.join)
        assert len(tokens) == 60
        assert tokens == sorted(set(tokens))


async def test_ranks_that_come_at_the_same_moment_are_all_counted(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        ranks: list[Worker] = []

        async def come() -> None:
            ranks.append(await aside(Worker.connect, here.address, job="a", group="g", state_bytes=10))

        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(come)
        assert here.scheduler.jobs["a"].state_bytes == {"g": 80}
        for rank in ranks:
            await aside(rank.close)
        assert not here.scheduler.jobs


async def test_a_rank_that_is_done_gives_back_what_it_holds_while_the_others_go_on(tmp_path: Path) -> None:
    async with site(tmp_path) as here, connected(here) as staying:
        leaving = await aside(Worker.connect, here.address, job="a", group="g")
        await aside(leaving.acquire)
        await aside(leaving.close)
        assert here.scheduler.jobs.keys() == {"a"}
        lease = await aside(staying.acquire)
        assert lease.held


async def test_the_same_request_number_is_the_same_request(tmp_path: Path) -> None:
    async with site(tmp_path) as here, connected(here) as worker:
        first = await aside(worker.acquire, request=7)
        second = await aside(worker.acquire, request=7)
        assert first is second


async def test_a_lost_job_is_named_in_what_its_other_workers_are_told(tmp_path: Path) -> None:
    async with site(tmp_path) as here, connected(here) as worker:
        lease = await aside(worker.acquire)
        await here.scheduler.lose_job("a", "an operator said so")
        await until(lambda: lease.lost_reason is not None, "the lease is lost")
        assert "an operator said so" in str(lease.lost_reason)
        with pytest.raises(LeaseLost, match="an operator said so"):
            await aside(worker.release, lease)
        with pytest.raises(UnknownJob):
            await aside(worker.acquire)


async def test_what_outgrew_the_device_is_said_and_the_turn_is_kept(tmp_path: Path) -> None:
    class Full(Recorder):
        def trim(self, group: str, node: str, job: str) -> int:
            raise DeviceMemoryFull("7 bytes too many")

    async with site(tmp_path) as here, connected(here, backend=Full()) as worker:
        lease = await aside(worker.acquire)
        with pytest.raises(DeviceMemoryFull, match="7 bytes"):
            await aside(worker.release, lease)
        assert here.holder() == "a"

        def body() -> None:
            with worker.hold(within=lease, groups="g"):
                pass

        with pytest.raises(AcquireRefused):
            await aside(body)


async def test_a_state_that_cannot_be_dropped_is_said_at_the_end(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        worker = await aside(Worker.connect, here.address, job="a", group="g", backend=Recorder(fails="discard"))
        with pytest.raises(BackendError, match="no discard today"):
            await aside(worker.close)
        assert "a" in here.scheduler.jobs


async def test_a_suspended_turn_goes_on_with_new_tokens(tmp_path: Path) -> None:
    group = Group("g", capacity_bytes=100, suspendable=True, max_phase_us=100_000)
    async with site(tmp_path, group, suspendable=True) as here:
        with pytest.raises(Invalid, match="cannot park at any moment"):
            await aside(Worker.connect, here.address, job="x", group="g")
        a = connected(here, "a", backend=Recorder(), state_bytes=60)
        b = connected(here, "b", backend=Recorder(), state_bytes=60)
        async with a as first, b as second:
            lease = await aside(first.acquire)
            token = lease.tokens["g"]
            other = await aside(second.acquire)
            await until(lambda: lease.suspended, "a is suspended")
            assert not lease.resumed(0.01)
            await aside(second.release, other)
            assert await aside(lease.resumed, 20)
            assert lease.tokens["g"] > token
            await aside(first.release, lease)


async def test_closing_ends_what_waits_and_what_is_asked_later(tmp_path: Path) -> None:
    async with site(tmp_path) as here, connected(here, "b") as other:
        await aside(other.acquire)
        worker = await aside(Worker.connect, here.address, job="a", group="g")
        errors: list[BaseException] = []

        def wait() -> None:
            try:
                worker.acquire()
            except AcquireRefused as error:
                errors.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        await until(lambda: here.waiting() == ["a"], "a waits")
        await aside(worker.close)
        await aside(thread.join)
        assert "withdrawn" in str(errors[0])
        await aside(worker.close)
        with pytest.raises(ChannelClosed, match="was closed"):
            await aside(worker.acquire)


async def test_nobody_at_the_address_is_said_with_the_address(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/nobody.sock"
    with pytest.raises(ChannelClosed, match=r"no scheduler answers at unix:.*nobody\.sock for 0\.3 s"):
        await aside(Worker.connect, address, job="a", group="g", timeout_s=0.3)


async def test_a_server_that_is_no_scheduler_is_said_at_once(tmp_path: Path) -> None:
    server = grpc.aio.server()
    server.add_insecure_port(f"unix:{tmp_path}/other.sock")
    await server.start()
    with pytest.raises(ChannelClosed, match="is no tsched scheduler"):
        await aside(Worker.connect, f"unix:{tmp_path}/other.sock", job="a", group="g")
    await server.stop(0)


async def test_a_scheduler_that_starts_later_is_waited_for(tmp_path: Path) -> None:
    hub, address = WorkerHub(), f"unix:{tmp_path}/late.sock"
    async with Scheduler([Group("g")], backend=hub.backend) as scheduler, anyio.create_task_group() as tasks:

        async def connect() -> None:
            worker = await aside(Worker.connect, address, job="a", group="g")
            await aside(worker.close)
            tasks.cancel_scope.cancel()

        tasks.start_soon(connect)
        await anyio.sleep(0.3)
        async with hub.serve(scheduler, address):
            await anyio.sleep_forever()


async def test_a_scheduler_that_does_not_come_back_ends_every_lease_and_request(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        worker = await aside(Worker.connect, here.address, job="a", group="g", timeout_s=0.5)
        lease = await aside(worker.acquire)
    with pytest.raises(ChannelClosed, match="no scheduler answers"):
        await aside(worker.acquire)
    assert "no scheduler answers" in str(lease.lost_reason)
    await aside(worker.close)


async def test_loopback_is_served_and_other_interfaces_only_when_told_so(tmp_path: Path) -> None:
    async with site(tmp_path, address="127.0.0.1:0") as here, connected(here) as worker:
        assert worker.address.startswith("127.0.0.1:")
        assert (await aside(worker.acquire)).held
        with pytest.raises(Invalid, match="neither encrypted nor authenticated"):
            async with WorkerHub().serve(here.scheduler, "0.0.0.0:0"):
                pass
        async with WorkerHub().serve(here.scheduler, "0.0.0.0:0", insecure=True) as address:
            assert address.startswith("0.0.0.0:")


async def test_a_socket_in_use_is_not_taken_over_and_a_dead_one_is(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        with pytest.raises(Invalid, match="another server listens there"):
            async with WorkerHub().serve(here.scheduler, here.address):
                pass
        path = here.address.removeprefix("unix:")
        assert os.stat(path).st_mode & 0o077 == 0
    assert not os.access(path, os.F_OK)


def run_script(address: str, text: str) -> subprocess.CompletedProcess[str]:
    script = f"from tsched.rpc.worker import Worker\nADDRESS = {address!r}\n" + textwrap.dedent(text)
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )


async def test_a_forked_child_is_told_to_connect_anew_and_harms_nobody(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        ended = await aside(
            run_script,
            here.address,
            """
            import os, sys
            worker = Worker.connect(ADDRESS, job="a", group="g")
            lease = worker.acquire()
            child = os.fork()
            if child == 0:
                for act in (worker.acquire, lambda: worker.release(lease),
                            lambda: Worker.connect(ADDRESS, job="b", group="g")):
                    try:
                        act()
                    except ConnectionError as error:
                        print(type(error).__name__, "fork" in str(error), flush=True)
                worker.close()
                sys.exit(0)
            print("child", os.waitpid(child, 0)[1], flush=True)
            worker.release(lease)
            worker.close()
            """,
        )
        assert ended.stderr == ""
        assert ended.stdout.split("\n") == [*["ChannelClosed True"] * 3, "child 0", ""]
        assert ended.returncode == 0


async def test_a_process_that_is_killed_beside_its_forked_child_is_seen_to_be_dead(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        ended = await aside(
            run_script,
            here.address,
            """
            import os, signal, time
            worker = Worker.connect(ADDRESS, job="a", group="g")
            lease = worker.acquire()
            if os.fork() == 0:
                os.closerange(0, 3)
                time.sleep(3)
                os._exit(0)
            os.kill(os.getpid(), signal.SIGKILL)
            """,
        )
        assert ended.returncode == -signal.SIGKILL
        with anyio.fail_after(2):
            await until(
                lambda: "a" not in here.scheduler.jobs, "job a is lost, although its child keeps the stream open"
            )


@pytest.mark.parametrize(
    "end",
    ["pass", "raise SystemExit(0)", "threading.Thread(target=worker.acquire, daemon=True).start(); time.sleep(0.2)"],
)
async def test_a_process_ends_without_noise_whatever_it_left_open(tmp_path: Path, end: str) -> None:
    async with site(tmp_path) as here:
        text = f"""
            import threading, time
            worker = Worker.connect(ADDRESS, job="a", group="g")
            lease = worker.acquire(ttl_s=5)
            {end}
            """
        began = time.monotonic()
        ended = await aside(run_script, here.address, text)
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
        assert time.monotonic() - began < 20
        await until(lambda: "a" not in here.scheduler.jobs, "job a is lost")


async def test_a_second_worker_of_one_name_is_refused_in_the_same_process(tmp_path: Path) -> None:
    async with site(tmp_path) as here, connected(here, client="me"):
        with pytest.raises(Invalid, match=r"is connected to .* by this process: close it first"):
            await aside(Worker.connect, here.address, job="a", group="g", client="me")
    async with site(tmp_path) as here, connected(here, client="me"):
        assert [seen.client for seen in here.hub.workers] == ["me"]


async def test_a_path_may_have_any_character(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/a%41 b?#é.sock"
    async with site(tmp_path, address=address) as here, connected(here) as worker:
        assert os.listdir(tmp_path) == ["a%41 b?#é.sock"]
        assert (await aside(worker.acquire)).held


class Refilled(Recorder):
    """Refills and trims as it is told; `log` says in what order it is called."""

    def __init__(self, *, refill: Exception | None = None, trim: Exception | int = 0) -> None:
        super().__init__()
        self._refill, self._trim = refill, trim
        self.log: list[str] = []

    def refill(self, group: str, node: str, job: str) -> None:
        self.log.append(f"refill {group}/{node}/{job}")
        if self._refill is not None:
            raise self._refill

    def trim(self, group: str, node: str, job: str) -> int:
        self.log.append(f"trim {group}/{node}/{job}")
        if isinstance(self._trim, Exception):
            raise self._trim
        return self._trim


async def test_a_turn_is_refilled_after_its_grant_and_trimmed_before_its_release(tmp_path: Path) -> None:
    backend = Refilled()
    async with (
        site(tmp_path, Group("g"), Group("h")) as here,
        connected(here, backend=backend) as worker,
    ):
        lease = await aside(worker.acquire)
        assert backend.log == ["refill g/0/a"]
        await aside(worker.release, lease)
        assert backend.log == ["refill g/0/a", "trim g/0/a"]
        elsewhere = await aside(worker.acquire, "h")
        await aside(worker.release, elsewhere)
        assert len(backend.log) == 2


@pytest.mark.parametrize("error", [DeviceMemoryFull("3 bytes too many"), RuntimeError("out of luck")])
async def test_a_turn_that_cannot_be_refilled_is_given_back(tmp_path: Path, error: Exception) -> None:
    async with site(tmp_path) as here, connected(here, backend=Refilled(refill=error)) as worker:
        with pytest.raises(type(error), match=str(error)):
            await aside(worker.acquire)
        assert here.holder() is None


@pytest.mark.parametrize(("measured", "declared", "known"), [(10, 60, 60), (70, 60, 70), (10, None, 10)])
async def test_what_was_declared_is_raised_by_measuring_and_never_lowered(
    tmp_path: Path, measured: int, declared: int | None, known: int
) -> None:
    async with (
        site(tmp_path) as here,
        connected(here, backend=Refilled(trim=measured), state_bytes=declared) as worker,
    ):
        for _ in range(2):
            await aside(worker.release, await aside(worker.acquire))
            assert here.scheduler.jobs["a"].state_bytes == {"g": known}


@pytest.mark.parametrize("error", [DeviceMemoryFull("7 bytes too many"), RuntimeError("out of luck")])
@pytest.mark.parametrize("fails", [False, True])
async def test_a_body_leaves_its_turn_even_where_the_state_cannot_be_trimmed(
    tmp_path: Path, error: Exception, fails: bool
) -> None:
    async with site(tmp_path) as here, connected(here, backend=Refilled(trim=error), state_bytes=10) as worker:

        def body() -> None:
            with worker.hold():
                if fails:
                    raise KeyError("mine")

        with pytest.raises(KeyError if fails else type(error)):
            await aside(body)
        assert here.holder() is None
        assert here.scheduler.jobs["a"].state_bytes == {}


async def test_a_hub_that_closes_amid_a_move_does_not_hold_up_the_scheduler_s_end(tmp_path: Path) -> None:
    hub = WorkerHub()
    began = 0.0
    async with Scheduler([Group("g", capacity_bytes=100)], backend=hub.backend, drain_s=60) as scheduler:
        async with hub.serve(scheduler, f"unix:{tmp_path}/s.sock") as address:
            here = Site(scheduler, hub, address)
            a = connected(here, "a", backend=Recorder(hangs="park"), state_bytes=60)
            b = connected(here, "b", state_bytes=60)
            stack = AsyncExitStack()
            first, second = await stack.enter_async_context(a), await stack.enter_async_context(b)
            await aside(first.release, await aside(first.acquire))
            thread = threading.Thread(target=partial(_refused, second))
            thread.start()
            await until(lambda: "parking" in scheduler.status().jobs["a"].places.values(), "a is being parked")
        began = time.monotonic()
    assert time.monotonic() - began < 20
    await aside(second._end)
    await aside(thread.join)
    await aside(first._end)


def _refused(worker: Worker) -> None:
    with pytest.raises(ChannelClosed):
        worker.acquire()
