"""What the worker channel costs: a turn that moves nothing, across processes, beside a bare gRPC echo."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import anyio
import grpc

from tsched import Group, Scheduler
from tsched.rpc.hub import WorkerHub
from tsched.rpc.limits import CLIENT, SERVER
from tsched.rpc.worker import Worker

ROOT = Path(__file__).resolve().parent.parent
TURNS = 2000
WARM_UP = 200


async def _serve(folder: str) -> None:
    """A scheduler, and beside it a server that says what it hears, both until standard input ends."""
    echo = grpc.aio.server(options=SERVER)
    handler = grpc.stream_stream_rpc_method_handler(_echo)
    unary = grpc.unary_unary_rpc_method_handler(_echo_once)
    methods = {"Stream": handler, "Once": unary}
    echo.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("echo", methods),))
    echo.add_insecure_port(f"unix:{folder}/echo.sock")
    await echo.start()
    hub = WorkerHub()
    async with (
        Scheduler([Group("g", capacity_bytes=2 << 30)], backend=hub.backend) as scheduler,
        hub.serve(scheduler, f"unix:{folder}/hub.sock"),
    ):
        print("serving", flush=True)
        await anyio.to_thread.run_sync(sys.stdin.read)
    await echo.stop(0)


async def _echo(_: object, context: grpc.aio.ServicerContext[bytes, bytes]) -> None:
    while isinstance(message := await context.read(), bytes):
        await context.write(message)


async def _echo_once(message: bytes, _: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
    return message


@contextmanager
def served() -> Iterator[str]:
    """The servers in a process of their own; yields the folder of their sockets."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.channel", folder]
        with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            server.stdout.readline()
            yield folder
            server.communicate()


def _timed(act: Callable[[], object], times: int) -> list[float]:
    for _ in range(WARM_UP):
        act()
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        act()
        taken.append(time.perf_counter() - start)
    return sorted(taken)


def _echoes(folder: str) -> dict[str, list[float]]:
    """Round trips of a call, and of a message over one open stream that a thread reads, as the channel does."""
    with grpc.insecure_channel(f"unix:{folder}/echo.sock", options=CLIENT) as channel:
        raw: Any = channel
        once = raw.unary_unary("/echo/Once")
        said: SimpleQueue[bytes | None] = SimpleQueue()
        heard: SimpleQueue[bytes] = SimpleQueue()
        stream = raw.stream_stream("/echo/Stream")(iter(said.get, None))

        def read() -> None:
            for message in stream:
                heard.put(message)

        def over_the_stream() -> None:
            said.put(b"x" * 32)
            heard.get()

        reader = threading.Thread(target=read)
        reader.start()
        taken = {"call": _timed(lambda: once(b"x" * 32), TURNS), "stream": _timed(over_the_stream, TURNS)}
        said.put(None)
        reader.join()
    return taken


def turn() -> dict[str, float]:
    """Milliseconds of acquire and release by one worker whose state is resident, alone in line."""
    with served() as folder, Worker.connect(f"unix:{folder}/hub.sock", job="a", group="g", state_bytes=1) as worker:
        echoes = _echoes(folder)
        turns = _timed(lambda: worker.release(worker.acquire()), TURNS)
        p50_s, echo_s = statistics.median(turns), statistics.median(echoes["call"])
        return {
            "p50_ms": p50_s * 1e3,
            "p99_ms": turns[len(turns) * 99 // 100] * 1e3,
            "echo_call_p50_ms": echo_s * 1e3,
            "echo_stream_p50_ms": statistics.median(echoes["stream"]) * 1e3,
            "turn_to_two_echo_calls": p50_s / (2 * echo_s),
        }


def hand_over(turns: int = 500) -> dict[str, float]:
    """Milliseconds from one worker's release to the return of another's acquire, both in this process."""
    with served() as folder:
        address = f"unix:{folder}/hub.sock"
        connect = partial(Worker.connect, address, group="g", state_bytes=1)
        with connect(job="a") as a, connect(job="b") as b:
            taken = sorted(_hand_over(a, b, turns))
    return {"p50_ms": statistics.median(taken) * 1e3, "p99_ms": taken[len(taken) * 99 // 100] * 1e3}


def _hand_over(a: Worker, b: Worker, turns: int) -> list[float]:
    taken: list[float] = []
    released = 0.0

    def work(worker: Worker) -> None:
        nonlocal released
        for _ in range(turns):
            lease = worker.acquire()
            if released:
                taken.append(time.perf_counter() - released)
            time.sleep(0.002)  # so that the other one is in line again
            released = time.perf_counter()
            worker.release(lease)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in (a, b)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return taken


if __name__ == "__main__":
    if len(sys.argv) > 1:
        anyio.run(_serve, sys.argv[1])
    else:
        print({"turn": turn(), "hand_over": hand_over()})
