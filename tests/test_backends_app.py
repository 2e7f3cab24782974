"""Engines are parked by their own interface, and believed about nothing that memory can show."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.engine_server import SIZE, Bench, EngineServer, Reply
from tsched.backends import Order, Presence, Sizes
from tsched.backends.app import AppBackend, Engine
from tsched.errors import BackendError, DeviceMemoryFull, HostMemoryFull, ProcessGone
from tsched.testing.backend_suite import check_backend

pytestmark = pytest.mark.anyio

DIALECTS = ("vllm", "sglang")
MODES = ("offload", "discard")
SECOND_US = 1_000_000


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def order(op: int, job: str = "a", token: int = 1) -> Order:
    return Order(op, "g", "0", job, token, SIZE)


@pytest.fixture
def bench() -> Iterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def make(*args: Any, **settings: Any) -> Bench:
        made.append(Bench(*args, **settings))
        return made[-1]

    yield make
    for each in made:
        each.close()


Make = Callable[..., Bench]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_it_keeps_the_contract_of_backends(bench: Make, dialect: str, mode: str) -> None:
    host = 2 * SIZE if mode == "offload" else None
    await check_backend(
        lambda: bench(4 * SIZE, host, dialect=dialect, mode=mode),
        size_bytes=SIZE,
        capacity_bytes=4 * SIZE,
        host_bytes=host,
    )


# ------------------------------------------------------------------------------------------------- order of a wake


async def test_vllm_wakes_weights_then_loads_then_wakes_the_cache_and_empties_it(bench: Make) -> None:
    rig = bench(mode="discard")
    [engine] = rig.start()
    weights = engine.train()
    await rig.park(order(1))
    await rig.restore(order(2))
    assert engine.lines == [
        "/sleep?level=2&mode=abort",
        "/wake_up?tags=weights",
        "/collective_rpc",
        "/wake_up?tags=kv_cache",
        "/reset_prefix_cache",
    ]
    assert engine.read() == weights


async def test_sglang_pauses_before_it_releases_and_goes_on_when_it_is_whole(bench: Make) -> None:
    rig = bench(dialect="sglang", mode="discard")
    [engine] = rig.start()
    weights = engine.train()
    await rig.park(order(1))
    await rig.restore(order(2))
    assert engine.lines == [
        "/pause_generation",
        "/release_memory_occupation weights kv_cache",
        "/resume_memory_occupation weights",
        "/update_weights_from_disk",
        "/resume_memory_occupation kv_cache",
        "/flush_cache",
        "/continue_generation",
    ]
    assert engine.read() == weights


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_discarded_weights_are_those_of_the_last_sync_and_not_those_of_the_start(
    bench: Make, dialect: str
) -> None:
    rig = bench(dialect=dialect, mode="discard", backup=False)
    [engine] = rig.start()
    first, last = engine.read(), engine.train()
    await rig.park(order(1))
    assert not engine.copies
    await rig.restore(order(2))
    assert engine.read() == last != first


async def test_without_a_path_vllm_loads_what_it_was_started_with(bench: Make) -> None:
    rig = bench(mode="discard", weights=None)
    [engine] = rig.start()
    first = engine.read()
    await rig.park(order(1))
    await rig.restore(order(2))
    assert engine.read() == first


async def test_a_server_that_keeps_no_weights_is_not_put_to_sleep_to_keep_them(bench: Make) -> None:
    rig = bench(dialect="sglang", mode="offload", backup=False)
    [engine] = rig.start()
    weights = engine.train()
    with pytest.raises(BackendError, match=r"without enable_weights_cpu_backup, so its weights would be lost: start"):
        await rig.park(order(1))
    assert (engine.read(), engine.lines) == (weights, [])


async def test_the_cache_alone_can_go(bench: Make) -> None:
    rig = bench(dialect="sglang", tags=("kv_cache",), asleep_bytes=SIZE // 2)
    [engine] = rig.start()
    weights = engine.train()
    await rig.park(order(1))
    assert engine.asleep == {"kv_cache"}
    assert await rig.look() == Presence(0, SIZE // 2, True)
    await rig.restore(order(2))
    assert await rig.look() == Presence(SIZE // 2, 0, True)
    assert engine.read() == weights


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_requests_in_flight_are_aborted_before_memory_goes(bench: Make, dialect: str) -> None:
    rig = bench(dialect=dialect)
    [engine] = rig.start()
    engine.in_flight = 3
    await rig.park(order(1))
    assert (engine.aborted, engine.in_flight, engine.crashed) == (3, 0, "")


# --------------------------------------------------------------------------------------------------- truth of memory


async def test_a_sleep_that_was_acknowledged_is_no_park_while_its_memory_is_held(bench: Make) -> None:
    rig = bench()
    [engine] = rig.start()
    engine.keeps_memory = True
    await rig.park(order(1))
    began = time.monotonic()
    assert (await rig.look(deadline_us=50_000)).resident_bytes == SIZE
    assert 0.04 < time.monotonic() - began < 10
    await rig.park(order(2))
    assert engine.lines == ["/sleep?level=1&mode=abort"]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_let_go_soon, engine)
        assert await rig.look(deadline_us=20 * SECOND_US) == Presence(0, SIZE, True)


async def _let_go_soon(engine: EngineServer) -> None:
    await anyio.sleep(0.05)
    engine.let_go()


async def test_a_wake_that_was_acknowledged_is_no_restore_while_nothing_is_held(bench: Make) -> None:
    rig = bench(dialect="sglang")
    [engine] = rig.start()
    await rig.park(order(1))
    engine.answers["/resume_memory_occupation"] = Reply(200, times=2)
    await rig.restore(order(2))
    seen = await rig.look(deadline_us=30_000)
    assert (seen.resident_bytes, seen.parked_bytes > 0) == (0, True)
    await rig.restore(order(3))
    assert await rig.look(deadline_us=20 * SECOND_US) == Presence(SIZE, 0, True)


async def test_an_engine_that_says_it_is_awake_after_a_sleep_is_not_parked(bench: Make) -> None:
    rig = bench()
    [engine] = rig.start()
    engine.answers["/sleep"] = Reply(200)
    with pytest.raises(BackendError, match=r"acknowledged a sleep and says that it is awake: start it with VLLM_"):
        await rig.park(order(1))
    assert await rig.look() == Presence(SIZE, 0, True)


async def test_what_an_engine_rightly_keeps_while_it_sleeps_is_counted_for_no_job(bench: Make) -> None:
    rig = bench(context_bytes=100, asleep_bytes=100, drop_bytes=SIZE // 2)
    rig.start()
    assert await rig.sizes("g", "0", "a") == Sizes(SIZE // 2, SIZE // 2)
    assert await rig.look() == Presence(SIZE, 0, True)
    await rig.park(order(1))
    assert await rig.look() == Presence(0, SIZE // 2, True)
    await rig.discard(order(2))
    assert await rig.look() == Presence(0, 0, False)


async def test_an_engine_that_sleeps_when_it_is_registered_is_woken(bench: Make) -> None:
    rig = bench()
    [engine] = rig.start()
    weights = engine.read()
    await rig.park(order(1))
    anew = AppBackend(interval_s=0.005)
    anew.register("g", "0", "a", Engine(dialect="vllm", endpoints=(engine.url,), held_bytes=engine.held_bytes))
    assert (await anew.probe("g", "0", "a", deadline_us=0)).parked_bytes
    await anew.restore(order(1))
    assert engine.read() == weights


# ------------------------------------------------------------------------------------------------- all or nothing


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_when_one_replica_fails_to_sleep_the_others_are_woken(bench: Make, dialect: str, mode: str) -> None:
    rig = bench(dialect=dialect, mode=mode)
    engines = rig.start(replicas=3)
    path = "/sleep" if dialect == "vllm" else "/release_memory_occupation"
    engines[1].answers[path] = Reply(500, b"worker died")
    with pytest.raises(BackendError, match=rf"{engines[1].url}: POST {path}.* answered 500: worker died"):
        await rig.park(order(1))
    assert await rig.look() == Presence(3 * SIZE, 0, True)
    if mode == "offload":
        assert [engine.read() for engine in engines] == [engine.disk["first"] for engine in engines]
    else:  # one path for all of them: they are replicas
        assert all(engine.read() for engine in engines)


async def test_a_sleep_that_came_through_though_its_answer_was_lost_is_undone(bench: Make) -> None:
    rig = bench()
    engines = rig.start(replicas=2)
    engines[0].answers["/sleep"] = Reply(drop=True, after=True)
    with pytest.raises(BackendError, match=r"POST /sleep failed"):
        await rig.park(order(1))
    assert await rig.look() == Presence(2 * SIZE, 0, True)
    for engine in engines:
        assert engine.read()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_wake_that_runs_out_of_memory_half_way_leaves_none_of_it_behind(
    bench: Make, dialect: str, mode: str
) -> None:
    rig = bench(2 * SIZE, dialect=dialect, mode=mode)
    [engine] = rig.start()
    weights = engine.train()
    await rig.park(order(1))
    rig.device.hold("stranger", SIZE + SIZE // 4)  # weights fit, the cache does not
    for op in (2, 3):
        with pytest.raises(DeviceMemoryFull, match="out of memory"):
            await rig.restore(order(op))
        assert engine.held_bytes() == 0
        assert (await rig.look(deadline_us=SECOND_US)).parked_bytes
    rig.device.free("stranger")
    await rig.restore(order(4))
    assert engine.read() == weights


async def test_when_one_replica_fails_to_wake_the_others_are_put_to_sleep_again(bench: Make) -> None:
    rig = bench(mode="discard")
    engines = rig.start(replicas=3)
    await rig.park(order(1))
    engines[2].answers["/collective_rpc"] = Reply(500, b"no such file", times=1)
    with pytest.raises(BackendError, match="no such file"):
        await rig.restore(order(2))
    assert rig.device.held_bytes("a-1") == rig.device.held_bytes("a-3") == 0
    await rig.restore(order(3))
    assert all(engine.read() for engine in engines)


async def test_memory_of_a_half_woken_engine_that_ignores_a_sleep_is_seen_and_mended_by_the_next_wake(
    bench: Make,
) -> None:
    rig = bench(2 * SIZE)
    [engine] = rig.start()
    weights = engine.train()
    await rig.park(order(1))
    engine.stubborn = True
    rig.device.hold("stranger", SIZE + SIZE // 4)
    with pytest.raises(DeviceMemoryFull):
        await rig.restore(order(2))
    seen = await rig.look(deadline_us=20_000)
    assert (seen.resident_bytes, seen.parked_bytes > 0) == (SIZE // 2, True)
    rig.device.free("stranger")
    await rig.restore(order(3))
    assert await rig.look(deadline_us=SECOND_US) == Presence(SIZE, 0, True)
    assert engine.read() == weights


async def test_a_wake_that_cannot_fit_is_refused_before_it_begins(bench: Make) -> None:
    rig = bench(2 * SIZE)
    [engine] = rig.start(free_bytes=rig.device.free_bytes)
    await rig.park(order(1))
    rig.device.hold("stranger", SIZE + 1)
    with pytest.raises(DeviceMemoryFull, match=f"needs {SIZE} bytes, and its device has {SIZE - 1} left"):
        await rig.restore(order(2))
    assert engine.lines == ["/sleep?level=1&mode=abort"]


async def test_what_could_not_be_undone_is_told(bench: Make) -> None:
    rig = bench()
    engines = rig.start(replicas=2)
    engines[0].answers["/sleep"] = Reply(500, b"first")
    engines[1].answers["/wake_up"] = Reply(500, b"second")
    with pytest.raises(BackendError, match=r"first.*; and what was done could not be undone: .*second"):
        await rig.park(order(1))
    engines[0].answers.clear()
    engines[1].answers.clear()
    sent = list(engines[0].lines)
    await rig.restore(order(2))
    assert engines[0].lines == sent
    assert await rig.look(deadline_us=SECOND_US) == Presence(2 * SIZE, 0, True)


async def test_a_restore_of_what_is_awake_sends_nothing(bench: Make) -> None:
    """Faults 19 and 20: a duplicate resume races with new work, and ends an SGLang scheduler."""
    rig = bench(dialect="sglang")
    [engine] = rig.start()
    await rig.park(order(1))
    await rig.restore(order(2))
    sent = len(engine.lines)
    weights = engine.train()
    async with anyio.create_task_group() as tasks:
        for op in (2, 3, 3, 4):
            tasks.start_soon(rig.restore, order(op))
    assert (len(engine.lines), engine.crashed, engine.read()) == (sent, "", weights)


# ------------------------------------------------------------------------------------------------- host memory


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_many_cycles_leave_no_copies_on_the_host(bench: Make, dialect: str) -> None:
    rig = bench(host_bytes=SIZE, dialect=dialect)
    [engine] = rig.start()
    for cycle in range(25):
        await rig.park(order(2 * cycle))
        assert len(engine.copies) == 1
        await rig.restore(order(2 * cycle + 1))
        assert not engine.copies
        engine.train()


async def test_an_engine_that_keeps_its_copies_is_refused_before_the_host_is_full(bench: Make) -> None:
    rig = bench(host_bytes=2 * SIZE, drop_bytes=SIZE // 2)
    [leaky] = rig.start("leaky", host_copies_bytes=lambda: rig.jobs["leaky"].host_copies_bytes())
    leaky.keeps_copies = True
    for cycle in range(4):
        await rig.park(order(2 * cycle, "leaky"))
        await rig.restore(order(2 * cycle + 1, "leaky"))
    with pytest.raises(HostMemoryFull, match=f"needs {SIZE // 2} bytes of host memory, {2 * SIZE} are taken"):
        await rig.park(order(20, "leaky"))
    assert leaky.read()
    assert leaky.host_copies_bytes() == 2 * SIZE


async def test_discarded_weights_take_no_host_memory(bench: Make) -> None:
    rig = bench(host_bytes=0, mode="discard")
    rig.start()
    await rig.park(order(1))
    assert await rig.look() == Presence(0, 1, True)


# ------------------------------------------------------------------------------------------------- wrong answers


WRONG = [
    (Reply(500, b"Internal Server Error"), r"answered 500: Internal Server Error: see the engine's log"),
    (Reply(404), r"answered 404: it has no such route: start it with VLLM_SERVER_DEV_MODE=1 and --enable-sleep-mode"),
    (Reply(401), r"answered 401: it wants an authorization: give it in the engine's `headers`"),
    (Reply(307, headers={"location": "http://elsewhere/"}), r"answered 307: it redirects to http://elsewhere/: give"),
    (Reply(503), r"answered 503: no reason given: see"),
    (Reply(200, b'{"success": false, "message": "busy"}'), r"answered 200: .*busy.*: see"),
    (Reply(hang=True), r"got no answer within 1 s: the engine hangs, or `timeout_s` is too short"),
    (Reply(drop=True), r"failed: .*: is the engine running, and is this its address\?"),
]


@pytest.mark.parametrize(("reply", "said"), WRONG)
async def test_a_wrong_answer_is_an_error_that_names_endpoint_and_mend(bench: Make, reply: Reply, said: str) -> None:
    rig = bench(timeout_s=1.0 if reply.hang else 20.0)
    [engine] = rig.start()
    engine.answers["/sleep"] = reply
    with pytest.raises(BackendError, match=rf"^engine {engine.url}: POST /sleep\S* {said}"):
        await rig.park(order(1))
    assert await rig.look() == Presence(SIZE, 0, True)
    assert engine.read()


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"is_sleeping": "no"}'])
async def test_a_server_of_another_kind_is_left_alone(bench: Make, body: bytes) -> None:
    rig = bench()
    [engine] = rig.start()
    engine.answers["/is_sleeping"] = Reply(200, body)
    with pytest.raises(BackendError, match=r"is_sleeping"):
        await rig.park(order(1))
    assert engine.lines == []


async def test_an_older_sglang_is_asked_by_the_older_name(bench: Make) -> None:
    rig = bench(dialect="sglang")
    [engine] = rig.start()
    engine.answers["/server_info"] = Reply(404)
    engine.answers["/get_server_info"] = Reply(200, b'{"enable_memory_saver": true, "enable_weights_cpu_backup": true}')
    await rig.park(order(1))
    assert (await rig.look()).resident_bytes == 0


async def test_proxies_of_the_environment_are_not_used(bench: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    rig = bench()
    rig.start()
    await rig.park(order(1))
    assert (await rig.look()).resident_bytes == 0


async def test_a_path_of_weights_that_cannot_be_told_fails_the_wake_alone(bench: Make) -> None:
    def lost() -> str:
        raise FileNotFoundError("no weights were saved")

    rig = bench(mode="discard", weights=lost)
    [engine] = rig.start()
    await rig.park(order(1))
    with pytest.raises(BackendError, match="no weights were saved"):
        await rig.restore(order(2))
    assert engine.held_bytes() == 0


# ------------------------------------------------------------------------------------------------- life and death


async def test_a_dead_engine_is_gone_and_holds_nothing(bench: Make) -> None:
    rig = bench()
    [engine] = rig.start()
    await rig.park(order(1))
    engine.kill()
    assert await rig.look(deadline_us=SECOND_US) == Presence(0, 0, False)
    with pytest.raises(ProcessGone, match=r"restore: the engine of job 'a' on g/0 has exited"):
        await rig.restore(order(2))


async def test_an_engine_that_dies_in_the_midst_of_a_move_is_gone(bench: Make) -> None:
    rig = bench()
    [engine] = rig.start()
    engine.answers["/sleep"] = Reply(hang=True)

    async def kill() -> None:
        await anyio.to_thread.run_sync(engine.hung.wait, 20)
        engine.kill()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(kill)
        with pytest.raises(ProcessGone, match=r"has exited: engine http"):
            await rig.park(order(1))


async def test_a_refused_connection_of_an_engine_that_lives_elsewhere_is_not_its_death(bench: Make) -> None:
    rig = bench()
    [engine] = rig.start()
    rig.backend.register(
        "g", "0", "a", Engine(dialect="vllm", endpoints=("http://127.0.0.1:9",), held_bytes=engine.held_bytes)
    )
    with pytest.raises(BackendError, match=r"127.0.0.1:9: GET /is_sleeping failed: .*: is the engine running") as seen:
        await rig.park(order(1))
    assert not isinstance(seen.value, ProcessGone)
    assert (await rig.look()).alive


async def test_a_discard_ends_a_move_that_hangs(bench: Make) -> None:
    rig = bench(timeout_s=100.0)
    [engine] = rig.start()
    engine.answers["/sleep"] = Reply(hang=True)
    failures: list[BackendError] = []

    async def park() -> None:
        try:
            await rig.park(order(1))
        except BackendError as error:
            failures.append(error)

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(park)
            await anyio.to_thread.run_sync(engine.hung.wait, 20)
            await rig.discard(order(2))
    assert "ended in the midst of a move" in str(failures[0])
    assert await rig.look(deadline_us=SECOND_US) == Presence(0, 0, False)


async def test_a_discard_is_over_when_the_memory_of_what_was_ended_is_free(bench: Make) -> None:
    rig = bench(end=lambda: None)
    [engine] = rig.start()
    await rig.discard(order(1))
    assert await rig.look(deadline_us=20_000) == Presence(SIZE, 0, False)

    async def exit_soon() -> None:
        await anyio.sleep(0.05)
        engine.kill()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(exit_soon)
        assert await rig.look(deadline_us=20 * SECOND_US) == Presence(0, 0, False)


async def test_an_engine_that_nobody_can_end_says_so_and_goes_on(bench: Make) -> None:
    rig = bench(end=None, alive=None)
    [engine] = rig.start()
    with pytest.raises(BackendError, match=r"no way to end the engine of job 'a' on g/0: register it with `pids` or"):
        await rig.discard(order(1))
    assert engine.read()
    await rig.park(order(2))
    assert (await rig.look()).resident_bytes == 0


async def test_a_job_without_an_engine_is_told_to_register_it(bench: Make) -> None:
    rig = bench()
    with pytest.raises(BackendError, match=r"job 'a' has no engine on g/0: register it before its first turn"):
        await rig.park(order(1))
    assert await rig.sizes("g", "0", "a") == Sizes(0)
    rig.start()
    rig.backend.unregister("g", "0", "a")
    assert await rig.look() == Presence()


class Program:
    """An engine in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.figures = folder / "figures.json"
        root = Path(__file__).resolve().parent.parent
        command = [sys.executable, "-m", "tests.engine_server", str(self.figures)]
        self.process = subprocess.Popen(command, cwd=root)
        until = time.monotonic() + 30
        while not self.figures.exists():
            assert time.monotonic() < until
            assert self.process.poll() is None
            time.sleep(0.01)

    def read(self) -> dict[str, Any]:
        return dict(json.loads(self.figures.read_text()))

    def held_bytes(self) -> int:
        return int(self.read()["held_bytes"]) if self.process.poll() is None else 0


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    made = Program(tmp_path)
    yield made
    made.process.kill()
    made.process.wait()


async def test_an_engine_in_a_process_of_its_own_is_parked_restored_and_ended_by_its_id(program: Program) -> None:
    backend = AppBackend()
    engine = Engine(
        dialect="vllm",
        endpoints=(program.read()["url"],),
        held_bytes=program.held_bytes,
        pids=(program.process.pid,),
    )
    backend.register("g", "0", "a", engine)
    await backend.park(order(1))
    assert (await backend.probe("g", "0", "a", deadline_us=20 * SECOND_US)).resident_bytes == 0
    await backend.restore(order(2))
    seen = await backend.probe("g", "0", "a", deadline_us=20 * SECOND_US)
    assert (seen.resident_bytes > 0, seen.parked_bytes) == (True, 0)
    await backend.discard(order(3))
    assert program.process.wait(20) != 0
    assert await backend.probe("g", "0", "a", deadline_us=20 * SECOND_US) == Presence(0, 0, False)
    with pytest.raises(ProcessGone):
        await backend.restore(order(4))
    with pytest.raises(ProcessGone, match=f"no process {program.process.pid}: register the engine once it runs"):
        backend.register("g", "0", "a", engine)
