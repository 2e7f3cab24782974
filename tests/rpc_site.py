"""Worker and scheduler processes for the tests of the worker channel, each told line by line what to do."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import anyio
import msgspec
from anyio.abc import Process
from anyio.streams.text import TextReceiveStream

from tsched import Group, Scheduler
from tsched.backends import Order, Presence, Sizes
from tsched.backends.fake import FakeBackend
from tsched.costs import FixedTable
from tsched.errors import BackendError
from tsched.journal.sqlite import SqliteJournal
from tsched.rpc.executor import Executor
from tsched.rpc.hub import WorkerHub
from tsched.rpc.worker import Worker, WorkerLease

ROOT = Path(__file__).resolve().parent.parent
PATIENCE_S = 30
FEW_MS = 3_000


class Recorder(FakeBackend):
    """A backend that remembers its orders; it may be told to hang on a kind, or to fail."""

    def __init__(self, hangs: str = "", fails: str = "", once: bool = False) -> None:
        super().__init__()
        self.orders: list[list[Any]] = []
        self.once = once
        self.hangs, self.fails = hangs, fails

    async def park(self, order: Order) -> None:
        await self._before("park", order)
        await super().park(order)

    async def restore(self, order: Order) -> None:
        await self._before("restore", order)
        await super().restore(order)

    async def discard(self, order: Order) -> None:
        await self._before("discard", order)
        await super().discard(order)

    async def _before(self, kind: str, order: Order) -> None:
        self.orders.append([kind, order.op, order.token])
        if kind == self.hangs:
            self.hangs = "" if self.once else kind
            await anyio.sleep_forever()
        if kind == self.fails:
            raise RuntimeError(f"no {kind} today")


class Growing(Recorder):
    """One whose state has grown when it is trimmed."""

    def __init__(self, grows_to: int) -> None:
        super().__init__()
        self._grows_to = grows_to

    def trim(self, group: str, node: str, job: str) -> int:
        return self._grows_to


# -------------------------------------------------------------------------------- a worker, in its own process


def be_worker() -> None:
    """Read what to do from standard input, one JSON list a line: a name and its keyword arguments."""
    worker: Worker | None = None
    leases: dict[int, WorkerLease] = {}
    backend: Recorder | None = None
    for line in sys.stdin:
        name, arguments = json.loads(line)
        try:
            if name == "connect":
                moves = arguments.pop("moves", {})
                backend = _backend(moves)
                worker = Worker.connect(backend=backend, **arguments)
                answer: Any = worker.client
            elif name == "orders":
                assert backend is not None
                answer = backend.orders
            elif name == "held":
                answer = [[lease.id, lease.held, lease.lost_reason] for lease in leases.values()]
            else:
                assert worker is not None
                answer = _do(worker, leases, name, arguments)
        except BaseException as error:
            answer = {"error": type(error).__name__, "text": str(error), "code": getattr(error, "code", "")}
        print(json.dumps(answer), flush=True)


def _backend(moves: dict[str, Any] | None) -> Recorder | None:
    if moves is None:
        return None
    return Growing(**moves) if "grows_to" in moves else Recorder(**moves)


def _do(worker: Worker, leases: dict[int, WorkerLease], name: str, arguments: dict[str, Any]) -> Any:
    if name == "acquire":
        if "within" in arguments:
            arguments["within"] = leases[arguments["within"]]
        lease = worker.acquire(**arguments)
        leases[lease.id] = lease
        return {"lease": lease.id, "tokens": dict(lease.tokens), "restored": lease.restored, "phase": lease.phase}
    if name in ("release", "renew"):
        getattr(worker, name)(leases[arguments.pop("lease")], **arguments)
        return "done"
    if name == "waits":  # an acquire in a thread, for what the process does meanwhile
        threading.Thread(target=worker.acquire, daemon=True).start()
        return "waits"
    getattr(worker, name)(**arguments)
    return "done"


# -------------------------------------------------------------------------------- many jobs on one fake device


class Shared:
    """One fake device that the workers of several jobs share: all its calls are made in one event loop."""

    suspendable = True

    def __init__(self, fake: FakeBackend, loop: Executor) -> None:
        self._fake, self._loop = fake, loop

    async def park(self, order: Order) -> None:
        await self._there(self._fake.park, order)

    async def restore(self, order: Order) -> None:
        await self._there(self._fake.restore, order)

    async def discard(self, order: Order) -> None:
        await self._there(self._fake.discard, order)

    async def probe(self, group: str, node: str, job: str, *, deadline_us: int) -> Presence:
        seen = await self._there(partial(self._fake.probe, deadline_us=deadline_us), group, node, job)
        return cast(Presence, seen)

    async def sizes(self, group: str, node: str, job: str) -> Sizes:
        return cast(Sizes, await self._there(self._fake.sizes, group, node, job))

    async def _there(self, work: Callable[..., Awaitable[object]], *arguments: object) -> object:
        return await anyio.to_thread.run_sync(self._loop.start(work, *arguments).result)


def be_rig() -> None:
    """A worker for every job that is allocated, on one small device."""
    loop, address = Executor("device"), ""
    fake = FakeBackend(capacity_bytes={"g": 3 * 4096}, host_bytes=2 * 4096, costs=FixedTable(default_us=FEW_MS))
    workers: dict[str, Worker] = {}

    async def deed(name: str, place: list[Any]) -> Any:
        return getattr(fake, name)(*place)

    for line in sys.stdin:
        name, arguments = json.loads(line)
        answer: Any = "done"
        try:
            if name == "rig":
                address = arguments["address"]
            else:
                group, node, job, *_ = arguments["place"]
                if name == "allocate" and job not in workers:
                    backend = Shared(fake, loop)
                    workers[job] = Worker.connect(address, job=job, group=group, node=node, backend=backend)
                made = loop.start(deed, name, arguments["place"]).result()
                answer = made.hex() if isinstance(made, bytes) else "done"
        except BackendError as error:
            answer = {"error": "BackendError", "text": str(error)}
        print(json.dumps(answer), flush=True)


@dataclass
class Told:
    """A process that is told what to do."""

    process: Process
    lines: AsyncIterator[str]

    async def tell(self, name: str, **arguments: Any) -> None:
        assert self.process.stdin is not None
        await self.process.stdin.send((json.dumps([name, arguments]) + "\n").encode())

    async def hear(self) -> Any:
        with anyio.fail_after(PATIENCE_S):
            return json.loads(await anext(self.lines))

    async def do(self, name: str, **arguments: Any) -> Any:
        await self.tell(name, **arguments)
        return await self.hear()

    async def end(self) -> int:
        """Close its input, and wait for it to end."""
        assert self.process.stdin is not None
        await self.process.stdin.aclose()
        with anyio.fail_after(PATIENCE_S):
            return await self.process.wait()


async def _lines(process: Process) -> AsyncIterator[str]:
    assert process.stdout is not None
    buffered = ""
    async for text in TextReceiveStream(process.stdout):
        buffered += text
        while "\n" in buffered:
            line, _, buffered = buffered.partition("\n")
            yield line


@asynccontextmanager
async def told(*arguments: str) -> AsyncIterator[Told]:
    """A process of this module's; killed at the end, if it lives."""
    command = [sys.executable, "-W", "error", "-m", "tests.rpc_site", *arguments]
    async with await anyio.open_process(command, cwd=ROOT, stderr=None) as process:
        try:
            yield Told(process, _lines(process))
        finally:
            if process.returncode is None:
                process.kill()
            with anyio.CancelScope(shield=True):
                await process.wait()


@asynccontextmanager
async def worker(address: str, job: str, *, group: str = "g", **arguments: Any) -> AsyncIterator[Told]:
    """A worker process that has connected."""
    async with told("worker") as process:
        answer = await process.do("connect", address=address, job=job, group=group, **arguments)
        assert isinstance(answer, str), answer
        yield process


# -------------------------------------------------------------------------------- a scheduler


@dataclass
class Site:
    """A scheduler in this process, serving at `address`."""

    scheduler: Scheduler
    hub: WorkerHub
    address: str

    def holder(self, group: str = "g") -> str | None:
        holding = self.scheduler.status().groups[group].holder
        return None if holding is None else holding.job

    def waiting(self, group: str = "g") -> list[str]:
        return [waiter.job for waiter in self.scheduler.status().groups[group].waiters]


@asynccontextmanager
async def site(folder: Path, *groups: Group, address: str = "", **options: Any) -> AsyncIterator[Site]:
    hub = WorkerHub(**options)
    address = address or f"unix:{folder}/s.sock"
    async with (
        Scheduler(groups or (Group("g", capacity_bytes=100),), backend=hub.backend, drain_s=0.1) as scheduler,
        hub.serve(scheduler, address) as bound,
    ):
        yield Site(scheduler, hub, bound)


async def until_so(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    """Wait for what another process makes true."""
    with anyio.move_on_after(PATIENCE_S):
        while True:
            if await condition():
                return
            await anyio.sleep(0.005)
    raise AssertionError(f"never: {what}")


async def until(condition: Callable[[], bool], what: str) -> None:
    async def so() -> bool:
        return condition()

    await until_so(so, what)


async def has_orders(process: Told) -> None:
    async def some() -> bool:
        return bool(await process.do("orders"))

    await until_so(some, "the worker is given an order")


async def _serve(folder: str) -> None:
    """A scheduler with its log on disk, until standard input ends; says its status for each line."""
    hub = WorkerHub(grace_s=5)
    journal = SqliteJournal(Path(folder) / "log.sqlite")
    groups = [Group("g", capacity_bytes=100)]
    async with (
        Scheduler(groups, backend=hub.backend, journal=journal, drain_s=0.1) as scheduler,
        hub.serve(scheduler, f"unix:{folder}/s.sock"),
    ):
        print(json.dumps("serving"), flush=True)
        while await anyio.to_thread.run_sync(sys.stdin.readline):
            print(msgspec.json.encode(msgspec.to_builtins(scheduler.status().groups["g"])).decode(), flush=True)
    journal.close()


if __name__ == "__main__":
    if sys.argv[1] == "worker":
        be_worker()
    elif sys.argv[1] == "rig":
        be_rig()
    else:
        anyio.run(_serve, sys.argv[2])
