"""The contract suite catches every backend that breaks a rule, and names the rule."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import anyio
import pytest

from tsched.backends import Order, Presence
from tsched.backends.fake import FakeBackend
from tsched.costs import FixedTable, SwitchCosts
from tsched.errors import BackendError, Invalid, StaleToken
from tsched.faults import FaultRates, Faults
from tsched.testing import run_virtual
from tsched.testing.backend_suite import CHECKS, ContractViolation, check_backend

SIZE, CAPACITY, HOST = 1_000, 4_000, 3_000
Key = tuple[str, str, str]


class Sound(FakeBackend):
    """What the broken ones below are made of."""

    def __init__(self, *, faults: Faults | None = None) -> None:
        costs: SwitchCosts = FixedTable(default_us=5_000_000)
        super().__init__(costs=costs, faults=faults, capacity_bytes={"g": CAPACITY}, host_bytes=HOST)

    def key(self, order: Order) -> Key:
        return order.group, order.node, order.job


async def check(make: Callable[[], FakeBackend]) -> None:
    await check_backend(make, size_bytes=SIZE, capacity_bytes=CAPACITY, host_bytes=HOST)


class LyingProbe(Sound):
    """Says that the device is free, whatever is there."""

    async def probe(self, group: str, node: str, job: str, *, deadline_us: int) -> Presence:
        seen = await super().probe(group, node, job, deadline_us=deadline_us)
        return Presence(0, seen.parked_bytes, seen.alive)


class ProbeBelievesAcknowledgements(Sound):
    """Keeps the device memory of what it parked, where its probe does not look."""

    async def park(self, order: Order) -> None:
        await super().park(order)
        if self._place(self.key(order)).host is not None:
            self._place(("g", "0", f"leak of {order.job}")).create(b"x", SIZE, adopted=False)


class ProbeOfTheDead(Sound):
    """Takes every job for alive."""

    async def probe(self, group: str, node: str, job: str, *, deadline_us: int) -> Presence:
        seen = await super().probe(group, node, job, deadline_us=deadline_us)
        return Presence(seen.resident_bytes, seen.parked_bytes)


class ProbeWithoutDeadline(Sound):
    """Waits for the memory to settle, however long that takes."""

    async def probe(self, group: str, node: str, job: str, *, deadline_us: int) -> Presence:
        return await super().probe(group, node, job, deadline_us=deadline_us and 10**12)


class RestoresTwice(Sound):
    """Keeps its host copy and brings it back whenever it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.copies: dict[Key, bytes] = {}

    async def park(self, order: Order) -> None:
        place = self._place(self.key(order))
        before = place.device
        await super().park(order)
        if before is not None and place.device is None:
            self.copies[self.key(order)] = before

    async def restore(self, order: Order) -> None:
        await super().restore(order)
        place = self._place(self.key(order))
        if place.device is not None:
            place.device = self.copies.get(self.key(order), place.device)


class DoesOldOrdersAgain(Sound):
    """Forgets what it has done."""

    async def park(self, order: Order) -> None:
        self._place(self.key(order)).moves.clear()
        await super().park(order)


class IgnoresTokens(Sound):
    async def _obey(self, kind, order):  # type: ignore[no-untyped-def]
        place = self._place(self.key(order))
        await super()._obey(kind, Order(order.op, order.group, order.node, order.job, place.token, order.size_bytes))


class OneTokenForAllJobs(Sound):
    """Fences by node, so that one job's token refuses another's orders."""

    def __init__(self) -> None:
        super().__init__()
        self.token = 0

    async def park(self, order: Order) -> None:
        if order.token < self.token:
            raise StaleToken("too small")
        self.token = order.token
        await super().park(order)


class RefusesStaleOrdersTooLate(Sound):
    """Does a stale discard, then complains."""

    async def discard(self, order: Order) -> None:
        place = self._place(self.key(order))
        if order.token < place.token:
            place.clear()
        await super().discard(order)


class LosesBytes(Sound):
    async def restore(self, order: Order) -> None:
        await super().restore(order)
        place = self._place(self.key(order))
        if place.device is not None:
            place.device = place.device[:-1] + b"\0"


class KeepsHostCopies(Sound):
    """What was restored stays in host memory as well."""

    async def restore(self, order: Order) -> None:
        await super().restore(order)
        place = self._place(self.key(order))
        place.host = place.host or place.device


class LeaksOnFailedRestore(Sound):
    """What it brought back before memory ran out stays, where its probe does not look."""

    async def restore(self, order: Order) -> None:
        try:
            await super().restore(order)
        except BackendError as error:
            if "out of memory" in str(error):
                leak = self._place(("g", "0", f"leak of {order.job}"))
                leak.create(b"x", SIZE // 2, adopted=False)
            raise


class DropsWhatDoesNotFit(Sound):
    """A failed restore loses the state."""

    async def restore(self, order: Order) -> None:
        try:
            await super().restore(order)
        except BackendError as error:
            if "out of memory" in str(error):
                self._place(self.key(order)).clear()
            raise


class RestoresIntoAFullDevice(Sound):
    def _check_device(self, group: str, node: str, more_bytes: int) -> None:
        """There is always room."""


class FillsTheHost(Sound):
    def _check_host(self, group: str, node: str) -> None:
        """There is always room."""


class MovesBeforeItLooksForRoom(Sound):
    """A park that host memory does not suffice for has freed the device already."""

    async def park(self, order: Order) -> None:
        try:
            await super().park(order)
        except MemoryError:
            self._place(self.key(order)).device = None
            raise


class OneDeathForAll(Sound):
    """A failed order damages whoever else is there."""

    async def park(self, order: Order) -> None:
        if self._place(self.key(order)).lost:
            for place in self._on("g", "0"):
                place.device = place.device and bytes(len(place.device))
        await super().park(order)


class ParksTheDead(Sound):
    """Acknowledges the park of a job whose process is gone."""

    async def park(self, order: Order) -> None:
        if not self._place(self.key(order)).lost:
            await super().park(order)


class DiscardNeedsAJob(Sound):
    async def discard(self, order: Order) -> None:
        if self._place(self.key(order)).empty:
            raise BackendError("no such process")
        await super().discard(order)


class DiscardsTheHostCopyNever(Sound):
    async def discard(self, order: Order) -> None:
        place = self._place(self.key(order))
        host = place.host
        await super().discard(order)
        place.host = host


class CannotBeCancelled(Sound):
    async def park(self, order: Order) -> None:
        with anyio.CancelScope(shield=True):
            await super().park(order)


class HangsWhenOrderedAnew(Sound):
    """After a cancelled order every other one waits for it for ever."""

    def __init__(self) -> None:
        super().__init__()
        self.busy = False

    async def park(self, order: Order) -> None:
        if self.busy:
            await anyio.sleep_forever()
        self.busy = True
        try:
            await super().park(order)
        except BackendError:
            self.busy = False
            raise
        self.busy = False


BROKEN: list[tuple[Callable[[], FakeBackend], str]] = [
    (LyingProbe, "round trip"),
    (ProbeBelievesAcknowledgements, "all or nothing"),
    (ProbeOfTheDead, "truth"),
    (ProbeWithoutDeadline, "in time"),
    (RestoresTwice, "once"),
    (DoesOldOrdersAgain, "once"),
    (IgnoresTokens, "fenced"),
    (OneTokenForAllJobs, "fenced"),
    (RefusesStaleOrdersTooLate, "fenced"),
    (LosesBytes, "round trip"),
    (KeepsHostCopies, "round trip"),
    (LeaksOnFailedRestore, "all or nothing"),
    (DropsWhatDoesNotFit, "all or nothing"),
    (RestoresIntoAFullDevice, "all or nothing"),
    (FillsTheHost, "all or nothing"),
    (MovesBeforeItLooksForRoom, "all or nothing"),
    (OneDeathForAll, "alone"),
    (ParksTheDead, "alone"),
    (DiscardNeedsAJob, "discard"),
    (DiscardsTheHostCopyNever, "discard"),
    (CannotBeCancelled, "in time"),
    (HangsWhenOrderedAnew, "in time"),
    (lambda: Sound(faults=Faults(0, FaultRates(fail=1.0))), "round trip"),
    (lambda: Sound(faults=Faults(0, FaultRates(hang=1.0))), "round trip"),
    (lambda: Sound(faults=Faults(0, FaultRates(lie=1.0))), "round trip"),
    (lambda: Sound(faults=Faults(0, FaultRates(lose=1.0))), "round trip"),
]


def test_a_sound_backend_passes() -> None:
    run_virtual(check, Sound)


def test_a_backend_that_is_slow_to_free_memory_but_says_so_passes() -> None:
    run_virtual(check, lambda: Sound(faults=Faults(0, FaultRates(late=1.0))))


@pytest.mark.parametrize(("make", "rule"), BROKEN)
def test_a_broken_backend_is_caught_by_the_rule_that_it_breaks(make: Callable[[], FakeBackend], rule: str) -> None:
    with pytest.raises(ContractViolation, match=f"rule '{rule}' is broken") as caught:
        run_virtual(check, make)
    assert caught.value.rule == rule


def test_every_rule_has_a_backend_that_breaks_it() -> None:
    assert {rule for _, rule in BROKEN} == {rule for rule, _ in CHECKS}


def test_without_capacities_their_checks_are_left_out() -> None:
    async def main() -> None:
        for make in (FillsTheHost, RestoresIntoAFullDevice):
            await check_backend(make, size_bytes=SIZE)

    run_virtual(main)


class AsyncRig(Sound):
    """A rig whose jobs take time to start, work, read and kill."""

    async def allocate(self, group: str, node: str, job: str, size_bytes: int) -> None:  # type: ignore[override]
        await anyio.sleep(1)
        super().allocate(group, node, job, size_bytes)

    async def contents(self, group: str, node: str, job: str) -> bytes:  # type: ignore[override]
        await anyio.sleep(1)
        return FakeBackend.contents(self, group, node, job)

    def work(self, group: str, node: str, job: str) -> None:
        place = self._place((group, node, job))
        assert place.device is not None
        place.device = place.device[::-1]


def test_a_rig_may_be_made_and_driven_by_coroutines() -> None:
    async def make() -> AsyncRig:
        await anyio.sleep(1)
        return AsyncRig()

    async def main() -> None:
        await check_backend(make, size_bytes=SIZE, capacity_bytes=CAPACITY, host_bytes=HOST)

    run_virtual(main)


def test_capacities_too_small_to_check_with_are_refused() -> None:
    async def main() -> None:
        await check_backend(Sound, size_bytes=SIZE, capacity_bytes=2_000)

    with pytest.raises(Invalid, match="capacity_bytes must be at least 3 x size_bytes, 3000, not 2000"):
        run_virtual(main)


def test_a_violation_survives_pickling() -> None:
    violation = pickle.loads(pickle.dumps(ContractViolation("once", "why")))
    assert (violation.rule, violation.detail, str(violation)) == ("once", "why", "rule 'once' is broken: why")
