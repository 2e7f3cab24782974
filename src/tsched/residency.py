"""Who is in memory: residency as a cache, and whom to evict.

A group's ledger counts, against its capacity, the bytes of every job that is resident, being restored (from the
start), or being parked or discarded (until its memory was seen free), plus the holder's working memory (rules R1 to
R4). A capacity that is unknown counts as one unit that every job fills; a job whose size is unknown fills the capacity.
Pure: no command is given here.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct, field

from tsched.model import Group, Job


class Standing(StrEnum):
    """Where a job's state on one group is, or is on its way to. A job without a place has no state there."""

    RESIDENT = "resident"
    PARKING = "parking"
    PARKED = "parked"
    RESTORING = "restoring"
    DISCARDING = "discarding"


class Place(Struct, gc=False):
    """One job's state on one group.

    `on_device`: its bytes count against the capacity. `unsafe`: it may still compute without a lease, so nobody is
    granted before it is off. `doomed`: its job is gone and the state must go too. `pending` nodes have not answered
    the move `op` yet, `failed` ones answered that it failed, the last of them `why`. The job's last turn here ended at
    `left_us` if it has not asked again; the time before it asked again was `away_us`, the last time.
    """

    job: str
    standing: Standing
    size_bytes: int
    on_device: bool = True
    unsafe: bool = False
    doomed: bool = False
    prefetched: bool = False
    restored: bool = False
    op: int = 0
    token: int = 0
    attempts: int = 0
    pending: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    why: str = ""
    retry_us: int = 0
    left_us: int = 0
    away_us: int | None = None

    @property
    def leaving(self) -> bool:
        return self.on_device and self.standing in (Standing.PARKING, Standing.DISCARDING)


class Ledger:
    """The memory of one group, on each of its nodes alike."""

    __slots__ = ("_measured", "capacity", "exclusive", "group", "places", "unsafe", "used")

    def __init__(self, group: Group) -> None:
        self.group = group
        self.exclusive = group.capacity_bytes is None
        self.capacity = 1 if group.capacity_bytes is None else group.capacity_bytes
        self.places: dict[str, Place] = {}
        self._measured: dict[str, Job] = {}
        self.used = 0
        self.unsafe = 0

    def size(self, job: Job) -> int:
        """What the job's state takes: its declared bytes, or all that its working memory leaves."""
        declared = job.state_bytes.get(self.group.name)
        if declared is None:
            return max(0, self.capacity - self.working(job))
        return min(declared, 1) if self.exclusive else declared

    def working(self, job: Job) -> int:
        """What the job needs on top while it computes."""
        return 0 if self.exclusive else job.turn_bytes.get(self.group.name, 0)

    def never_fits(self, job: Job) -> bool:
        """Whether the job needs more than there is, even alone. Jobs are values, so each is measured once."""
        if self._measured.get(job.name) is job:
            return False
        if self.size(job) + self.working(job) > self.capacity:
            return True
        self._measured[job.name] = job
        return False

    def add(self, place: Place) -> None:
        self.places[place.job] = place
        self.used += place.size_bytes if place.on_device else 0
        self.unsafe += place.unsafe

    def remove(self, job: str) -> None:
        place = self.places.pop(job)
        self.used -= place.size_bytes if place.on_device else 0
        self.unsafe -= place.unsafe

    def resize(self, job: Job) -> None:
        """The job declared another size."""
        place = self.places.get(job.name)
        if place is not None and not place.doomed:
            size = self.size(job)
            self.used += (size - place.size_bytes) if place.on_device else 0
            place.size_bytes = size

    def set_on_device(self, place: Place, on_device: bool) -> None:
        if place.on_device != on_device:
            self.used += place.size_bytes if on_device else -place.size_bytes
            place.on_device = on_device

    def set_unsafe(self, place: Place, unsafe: bool) -> None:
        self.unsafe += unsafe - place.unsafe
        place.unsafe = unsafe

    def forget(self, job: str) -> None:
        """The job is gone; its place, if it has one, stays until it was seen free."""
        self._measured.pop(job, None)

    def needed(self, job: Job) -> int:
        """Bytes that a turn of this job takes on top of what is used now."""
        place = self.places.get(job.name)
        state = 0 if place is not None and place.on_device else self.size(job)
        return state + self.working(job)

    def fits(self, needed: int) -> bool:
        return self.used + needed <= self.capacity

    def shortfall(self, job: Job) -> int:
        """Bytes that must still be evicted for a turn of this job, once all departures under way are over."""
        leaving = sum(p.size_bytes for p in self.places.values() if p.leaving and p.job != job.name)
        return self.used - leaving + self.needed(job) - self.capacity

    def victims(self, shortfall: int, order: list[Place]) -> list[Place]:
        """The fewest places, from the front of `order`, whose going frees `shortfall` bytes (rule R6)."""
        chosen: list[Place] = []
        for place in order:
            if shortfall <= 0:
                break
            chosen.append(place)
            shortfall -= place.size_bytes
        for place in reversed(list(chosen)):
            if shortfall + place.size_bytes <= 0:
                chosen.remove(place)
                shortfall += place.size_bytes
        return chosen

    def evictable(self, keep: str) -> list[Place]:
        """Resident places that may be parked for somebody's turn, not counting `keep`'s."""
        return [
            p
            for p in self.places.values()
            if p.standing is Standing.RESIDENT and p.size_bytes > 0 and p.job != keep and not p.doomed
        ]
