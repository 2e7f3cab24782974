"""The contract of `tsched.backends`, as checks for any backend: `await check_backend(make_backend)`.

A check orders what a scheduler would order, and needs a job to watch: the backend under test is handed over as a
`Rig`, which adds to the orders what a job does for itself. `FakeBackend` is one; for another backend write a class
that holds it and starts, drives, reads and kills the smallest job that it can serve. Every check starts on a new rig.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress

import anyio

from tsched.backends import Order
from tsched.backends.moves import give
from tsched.errors import BackendError, HostMemoryFull, Invalid, StaleToken
from tsched.model import SECOND_US
from tsched.testing.backend_rig import ContractViolation, Rig, Watch, value_of

__all__ = ["CHECKS", "ContractViolation", "Rig", "check_backend"]


async def check_backend(
    make_backend: Callable[[], Rig | Awaitable[Rig]],
    *,
    group: str = "g",
    node: str = "0",
    size_bytes: int = 4096,
    capacity_bytes: int | None = None,
    host_bytes: int | None = None,
    timeout_us: int = 60 * SECOND_US,
    grace_us: int = SECOND_US,
) -> None:
    """Put a backend through every rule of its contract, one new rig a rule.

    Args:
        make_backend: makes an empty rig.
        size_bytes: the size of the states that are made; up to three of them are on the device at a time.
        capacity_bytes: the device memory of the rig's node, to check what happens when it is full. Without it those
            checks are left out.
        host_bytes: the same for parked states.
        timeout_us: how long one order may take.
        grace_us: how late a cancelled call or a probe's deadline may be.

    Raises:
        ContractViolation: a rule is broken; it names which, and what was seen.
    """
    for name, value, least in (("capacity_bytes", capacity_bytes, 3), ("host_bytes", host_bytes, 1)):
        if value is not None and value < least * size_bytes:
            raise Invalid(
                f"check_backend: {name} must be at least {least} x size_bytes, {least * size_bytes}, not {value}"
            )
    for rule, check in CHECKS:
        rig = await value_of(make_backend())
        watch = Watch(rule, rig, group, node, size_bytes, capacity_bytes, host_bytes, timeout_us, grace_us)
        await check(watch)


async def check_round_trip(watch: Watch) -> None:
    contents = await watch.start("a")
    for turn in ("first", "second", "third"):
        await watch.done("park", watch.order("a"))
        await watch.expect_parked("a", f"after the {turn} park")
        await watch.done("restore", watch.order("a"))
        await watch.expect_resident("a", contents, f"after the {turn} restore")
        contents = await watch.work("a")


async def check_once(watch: Watch) -> None:
    await watch.start("a")
    park, restore = watch.order("a"), watch.order("a")
    await watch.done("park", park)
    await watch.done("park", park)
    await watch.expect_parked("a", "after a park was ordered twice")
    first = await watch.done("restore", restore)
    contents = await watch.work("a")
    again = await watch.done("restore", restore)
    watch.expect(again == first, f"after a restore was ordered twice, probe says {again}; {first} before")
    await watch.expect_resident("a", contents, "after a restore was ordered again in the midst of work")
    await watch.done("park", park)
    await watch.expect_resident("a", contents, "after an old park was ordered again")
    await watch.done("park", watch.order("a"))
    await watch.done("restore", restore)
    await watch.expect_parked("a", "after an old restore was ordered again")
    await watch.done("park", watch.order("a"))
    await watch.expect_parked("a", "after a new order to park what is parked")
    await watch.done("restore", watch.order("a"))
    await watch.done("restore", watch.order("a"))
    await watch.expect_resident("a", contents, "after a new order to restore what is resident")


async def check_fenced(watch: Watch) -> None:
    contents = await watch.start("a")
    await watch.done("park", watch.order("a", token=5))
    await watch.refused("restore", watch.order("a", token=4), StaleToken, "with token 4 after 5")
    await watch.expect_parked("a", "after a stale restore")
    await watch.done("restore", watch.order("a", token=6))
    for kind in ("park", "discard"):
        await watch.refused(kind, watch.order("a", token=5), StaleToken, "with token 5 after 6")
        await watch.expect_resident("a", contents, f"after a stale {kind}")
    await watch.start("b")
    await watch.done("park", watch.order("b", token=1))
    await watch.expect_parked("b", "after a park with this job's first token")


async def check_full_device(watch: Watch) -> None:
    if watch.capacity_bytes is None:
        return
    contents = await watch.start("a")
    await watch.done("park", watch.order("a"))
    other = await watch.start("b", watch.capacity_bytes)
    for time in ("once", "twice"):
        await watch.refused("restore", watch.order("a"), BackendError, "into a full device")
        await watch.expect_parked("a", f"after a restore ran out of memory {time}")
        await watch.expect_resident("b", other, f"after another job's restore ran out of memory {time}")
    await watch.done("discard", watch.order("b"))
    rest = watch.capacity_bytes - watch.size_bytes
    await watch.start("c", rest)
    await watch.done("restore", watch.order("a"))
    await watch.expect_resident("a", contents, "after a restore that had failed before")


async def check_full_host(watch: Watch) -> None:
    if watch.host_bytes is None:
        return
    contents = await watch.start("a")
    parked = await watch.start("b")
    left = watch.host_bytes // watch.size_bytes
    for number in range(left - 1):
        await watch.start(f"filler-{number}")
        await watch.done("park", watch.order(f"filler-{number}"))
    await watch.done("park", watch.order("b"))
    await watch.refused("park", watch.order("a"), HostMemoryFull, "to a full host")
    await watch.expect_resident("a", contents, "after a park that host memory did not suffice for")
    await watch.done("restore", watch.order("b"))
    await watch.expect_resident("b", parked, "after another job's park was refused")
    await watch.done("park", watch.order("a"))
    await watch.expect_parked("a", "after host memory had become free")


async def check_alone(watch: Watch) -> None:
    await watch.start("a")
    contents = await watch.start("b")
    await watch.kill("a")
    await watch.refused("park", watch.order("a"), BackendError, "of a dead job")
    await watch.expect_resident("b", contents, "after another job's death and failed park")
    await watch.done("park", watch.order("b"))
    await watch.refused("restore", watch.order("a"), BackendError, "of a dead job")
    await watch.expect_parked("b", "after another job's failed restore")
    await watch.done("restore", watch.order("b"))
    await watch.expect_resident("b", contents, "after its own round trip beside a dead job")


async def check_discard(watch: Watch) -> None:
    await watch.start("a")
    contents = await watch.start("b")
    for when in ("of a resident job", "of a job that is gone"):
        seen = await watch.done("discard", watch.order("a"))
        watch.expect(not (seen.resident_bytes or seen.parked_bytes), f"after a discard {when}, probe says {seen}")
    await watch.refused("restore", watch.order("a"), BackendError, "of a discarded state")
    await watch.start("a")
    await watch.done("park", watch.order("a"))
    seen = await watch.done("discard", watch.order("a"))
    watch.expect(not seen.parked_bytes, f"after a discard of a parked job, probe says {seen}")
    await watch.start("a")
    await watch.kill("a")
    await watch.done("discard", watch.order("a"))
    await watch.done("discard", watch.order("never-seen"))
    await watch.expect_resident("b", contents, "after another job was discarded")


async def check_truth(watch: Watch) -> None:
    contents = await watch.start("a")
    if watch.capacity_bytes is not None:
        await watch.start("filler", watch.capacity_bytes - watch.size_bytes)
    await watch.expect_resident("a", contents, "while the job runs")
    watch.expect((await watch.probe("a")).alive, "probe says that a job which runs is dead")
    seen = await watch.done("park", watch.order("a"))
    watch.expect(not seen.resident_bytes, f"after a park, probe says {seen}: its memory never became free")
    await watch.start("b")
    await watch.kill("b")
    seen = await watch.probe("b")
    watch.expect(not seen.alive, f"probe says that a job which was killed lives: {seen}")


async def check_in_time(watch: Watch) -> None:
    contents = await watch.start("a")
    for kind in ("park", "restore"):
        began = anyio.current_time()
        with anyio.CancelScope() as scope:
            scope.cancel()
            await give(watch.rig, kind, watch.order("a"))
        late_us = (anyio.current_time() - began) * SECOND_US
        watch.expect(late_us <= watch.grace_us, f"a cancelled {kind} returned only after {late_us:.0f} us")
        await watch.done(kind, watch.order("a"))
    await watch.expect_resident("a", contents, "after a park and a restore that were cancelled and ordered anew")
    order = watch.order("a")
    await _probe_in_its_midst(watch, order)
    await watch.done("park", order)
    await watch.expect_parked("a", "after it was probed in the midst of a park")


async def _probe_in_its_midst(watch: Watch, order: Order) -> None:
    """A park and a probe at the same time; what the park came to is asked by its op afterwards."""
    violations: list[ContractViolation] = []

    async def park() -> None:
        with suppress(BackendError):
            await give(watch.rig, "park", order)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(park)
        await anyio.sleep(0.001)
        try:
            seen = await watch.probe("a", deadline_us=1)
            watch.expect(bool(seen.resident_bytes or seen.parked_bytes), f"in the midst of a park, probe says {seen}")
        except ContractViolation as violation:  # raised below: a task group would wrap it
            violations.append(violation)
    if violations:
        raise violations[0]


CHECKS: tuple[tuple[str, Callable[[Watch], Awaitable[None]]], ...] = (
    ("round trip", check_round_trip),
    ("once", check_once),
    ("fenced", check_fenced),
    ("all or nothing", check_full_device),
    ("all or nothing", check_full_host),
    ("alone", check_alone),
    ("discard", check_discard),
    ("truth", check_truth),
    ("in time", check_in_time),
)
