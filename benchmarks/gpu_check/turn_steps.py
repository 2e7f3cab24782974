"""Two processes whose states together exceed the room take turns: parked whole by the driver, or by their regions.

Where the device has more room than one job needs, a third process holds the rest of it.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from benchmarks.gpu_check.channel_worker import GROUP
from benchmarks.gpu_check.child import Child
from benchmarks.gpu_check.outcome import Failed, Figures, Impossible
from benchmarks.gpu_check.process_steps import check_suspendable
from benchmarks.gpu_check.scale import GIB, Scale
from benchmarks.gpu_check.site import Site
from tsched import Group, Job, Scheduler
from tsched.backends.process import ProcessBackend
from tsched.rpc.hub import WorkerHub

JOBS = ("a", "b")


@dataclass
class Account:
    """One job's turns, as its parent hears of them."""

    losses: list[float] = field(default_factory=list)
    switches_s: list[float] = field(default_factory=list)
    held: int = 0


def turns_of_processes(site: Site, scale: Scale) -> Figures:
    """The parent takes turns for children that know nothing of turns; the driver parks them whole."""
    with _two(site, scale) as children:
        return anyio.run(_Processes(site, scale, children).run)


class _Processes:
    def __init__(self, site: Site, scale: Scale, children: dict[str, Child]) -> None:
        self._site, self._scale, self._children = site, scale, children
        self._accounts = {job: Account() for job in children}
        self._yielded = 0.0

    async def run(self) -> Figures:
        backend = ProcessBackend(gpu_pids=self._site.contexts)
        async with Scheduler([_group(self._scale)], backend=backend) as scheduler:
            async with anyio.create_task_group() as tasks:
                for job, child in self._children.items():
                    backend.register(GROUP, "0", job, [child.pid])
                    sizes = {GROUP: self._scale.state_bytes}, {GROUP: self._scale.turn_bytes}
                    await scheduler.add_job(Job(job, state_bytes=sizes[0], turn_bytes=sizes[1]))
                    tasks.start_soon(self._job, scheduler, job)
            for job in self._children:
                await scheduler.remove_job(job)
        return _judged(self._scale, self._accounts)

    async def _job(self, scheduler: Scheduler, job: str) -> None:
        account, child, left = self._accounts[job], self._children[job], ""
        for turn in range(self._scale.turns):
            async with scheduler.hold(job, GROUP, estimate_s=1.0) as lease:
                if lease.restored:
                    account.switches_s.append(time.perf_counter() - self._yielded)
                if turn == 0:
                    account.losses.append(await _ask(child, "build"))
                    check_suspendable(self._site, child.pid)
                elif await _ask(child, "checksum") != left:
                    raise Failed(f"turn {turn} of job {job}: its state differs from that at the end of its last turn")
                account.losses.append(await _ask(child, "step"))
                read = self._site.reader(child.pid)
                account.held = 0 if read == self._site.held else read()
                left = await _ask(child, "checksum")
                self._yielded = time.perf_counter()


def turns_of_regions(site: Site, scale: Scale) -> Figures:
    """The children are workers of the channel; their regions are parked."""
    with _two(site, scale) as children:
        return anyio.run(_regions, site, scale, children)


async def _regions(site: Site, scale: Scale, children: dict[str, Child]) -> Figures:
    hub, answers = WorkerHub(), dict[str, Any]()
    with tempfile.TemporaryDirectory() as folder:
        arena = "" if site.nvml is not None else str(Path(folder, "arena"))

        async def work(job: str, child: Child) -> None:
            answers[job] = await _ask(child, "work", address=address, job=job, arena=arena)

        async with (
            Scheduler([_group(scale)], backend=hub.backend) as scheduler,
            hub.serve(scheduler, f"unix:{folder}/hub.sock") as address,
            anyio.create_task_group() as tasks,
        ):
            for job, child in children.items():
                tasks.start_soon(work, job, child)
    for job, answer in answers.items():
        if not answer["same"]:
            raise Failed(f"job {job}: its state differs from that at the end of its last turn")
    return _judged(scale, {job: Account(each["losses"], each["waited_s"]) for job, each in answers.items()})


def _judged(scale: Scale, accounts: dict[str, Account]) -> Figures:
    """Raises `Failed` where a job did not progress, or was never parked."""
    for job, account in accounts.items():
        if len(account.losses) != scale.turns + 1 or account.losses[-1] >= account.losses[0]:
            raise Failed(f"job {job} did not progress in {scale.turns} turns: its losses are {account.losses}")
        if not account.switches_s:
            raise Failed(f"job {job} was never parked: it shared the device all the time")
    switches = [each for account in accounts.values() for each in account.switches_s]
    held = sum(account.held for account in accounts.values())
    return {
        "room_gib": scale.room_bytes / GIB,
        "states_over_room": len(accounts) * scale.state_bytes / scale.room_bytes,
        **({"held_together_gib": held / GIB} if held else {}),
        "turns_each": scale.turns,
        "switches": len(switches),
        "switch_median_s": statistics.median(switches),
        "losses": {job: [round(each, 4) for each in account.losses] for job, account in accounts.items()},
        "bits": "identical",
    }


def _group(scale: Scale) -> Group:
    return Group(GROUP, capacity_bytes=scale.room_bytes)


@contextmanager
def _two(site: Site, scale: Scale) -> Iterator[dict[str, Child]]:
    """Two children with torch imported, and beside them room for one of their states."""
    if 2 * scale.state_bytes <= scale.room_bytes:
        raise Impossible("two models that fit this machine need less than one's turn: a larger device is needed")
    with ExitStack() as stack:
        children = {job: stack.enter_context(Child(scale, seed)) for seed, job in enumerate(JOBS)}
        if site.nvml is not None:
            _take_the_rest(site, scale, stack.enter_context(Child(scale)))
        for child in children.values():
            child.ask("import")
        yield children


def _take_the_rest(site: Site, scale: Scale, ballast: Child) -> None:
    ballast.ask("hold", size_bytes=0)
    rest = site.memory().free_bytes - scale.ballast_beside_bytes
    if rest > 0:
        ballast.ask("hold", size_bytes=rest)


async def _ask(child: Child, deed: str, **arguments: object) -> Any:
    return await anyio.to_thread.run_sync(lambda: child.ask(deed, **arguments), abandon_on_cancel=True)
