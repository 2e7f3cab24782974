"""The regions of many jobs in one process, behind the contract of backends.

Moves run in threads of the order book; the job's own thread does not compute meanwhile, because it holds no lease. The
backend decides nothing and knows no turns.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

import torch

from tsched.backends import Order, Presence, Sizes
from tsched.backends.arena import Arena
from tsched.backends.orders import OrderBook
from tsched.backends.region import copiers
from tsched.backends.region.claims import Usage
from tsched.backends.region.commons import Commons
from tsched.backends.region.copiers import CopierFor
from tsched.backends.region.host import HostPool
from tsched.backends.region.regions import Regions
from tsched.backends.region.store import RegionStore
from tsched.errors import BackendError, ProcessGone

Key = tuple[str, str, str]


class RegionBackend:
    """Parks named regions of jobs in this process, tensor by tensor.

    Args:
        arena: the device's memory, where it is a CPU; all groups and nodes of this backend are charged to it.
        host_bytes: the most that parked states may weigh together; None for no limit.
        checksums: whether host copies are checked when they are brought back.
        copier_for: what copies, for each device.
    """

    suspendable = False

    def __init__(
        self,
        *,
        arena: Arena | None = None,
        host_bytes: int | None = None,
        checksums: bool = False,
        copier_for: CopierFor = copiers.copier_for,
    ) -> None:
        self.pool = HostPool(host_bytes)
        self._arena, self._checksums, self._copier_for = arena, checksums, copier_for
        self._book = OrderBook()
        self._stores: dict[Key, RegionStore] = {}
        self._ended: set[Key] = set()
        self._commons, self._usage = Commons(arena), Usage()
        self._lock = threading.Lock()

    def register(self, group: str, node: str, job: str, regions: Regions) -> RegionStore:
        """Look after this job's state, which is on the device now.

        Raises:
            BackendError: the job has a state here already.
            DeviceMemoryFull: the arena has no room for it; nothing is registered.
            Invalid: a source holds what has no plain storage.
        """
        key = (group, node, job)
        with self._lock:
            if key in self._stores:
                raise BackendError(f"job {job!r} is registered on {group}/{node} already: unregister it first")
            store = self._open(key, regions)
            try:
                self._commons.use(store.owner, store.shared)
            except BaseException:
                store.close()
                raise
            self._stores[key] = store
            self._ended.discard(key)
        return store

    def unregister(self, group: str, node: str, job: str) -> None:
        """The job goes: what is resident is left to it, what is parked is dropped. Harmless where it is not known."""
        store = self._remove((group, node, job))
        if store is not None:
            store.close()
            self.pool.shrink()

    async def park(self, order: Order) -> None:
        """Park every region; a job that has registered nothing yet has nothing to park."""
        await self._book.obey("park", order, lambda: self._park((order.group, order.node, order.job)))

    async def restore(self, order: Order) -> None:
        await self._book.obey("restore", order, lambda: self._store(order.group, order.node, order.job).restore())

    async def discard(self, order: Order) -> None:
        """Drop the state and forget the job; the process lives on."""
        await self._book.obey("discard", order, lambda: self._discard((order.group, order.node, order.job)))

    async def probe(self, group: str, node: str, job: str, *, deadline_us: int) -> Presence:
        await self._book.settle(group, node, job, deadline_us=deadline_us)
        store = self._stores.get((group, node, job))
        if store is None:
            return Presence(alive=(group, node, job) not in self._ended)
        return Presence(store.resident_bytes, store.parked_bytes)

    async def sizes(self, group: str, node: str, job: str) -> Sizes:
        store = self._stores.get((group, node, job))
        return Sizes(0) if store is None else store.sizes

    def trim(self, group: str, node: str, job: str) -> int:
        """At the end of a turn: see `RegionStore.trim`. A job that has nothing here yet keeps nothing."""
        store = self._stores.get((group, node, job))
        if store is None:
            return 0
        state_bytes = store.trim()
        self._share(store)
        return state_bytes

    def refill(self, group: str, node: str, job: str) -> None:
        """At the beginning of a turn: see `RegionStore.refill`."""
        store = self._stores.get((group, node, job))
        if store is not None:
            store.refill()

    def export(self, group: str, node: str, job: str, tags: Iterable[str] = ()) -> dict[str, torch.Tensor]:
        """Without a lease: see `RegionStore.export`."""
        return self._store(group, node, job).export(tags)

    def _open(self, key: Key, regions: Regions) -> RegionStore:
        return RegionStore(
            regions,
            owner="/".join(key),
            arena=self._arena,
            pool=self.pool,
            checksums=self._checksums,
            copier_for=self._copier_for,
            usage=self._usage,
        )

    def _share(self, store: RegionStore) -> None:
        """What it shares may have come or gone in its turn; a job that has left meanwhile shares nothing."""
        with self._lock:
            if store in self._stores.values():
                self._commons.use(store.owner, store.shared)

    def _park(self, key: Key) -> None:
        if key in self._stores or key in self._ended:
            self._store(*key).park()

    def _discard(self, key: Key) -> None:
        store = self._stores.get(key)
        if store is not None:
            store.discard()
            self._remove(key)
            self.pool.shrink()

    def _remove(self, key: Key) -> RegionStore | None:
        with self._lock:
            store = self._stores.pop(key, None)
            self._ended.add(key)
        if store is not None:
            self._commons.leave(store.owner)
        return store

    def _store(self, group: str, node: str, job: str) -> RegionStore:
        try:
            return self._stores[group, node, job]
        except KeyError:
            raise ProcessGone(f"job {job!r} has no regions on {group}/{node}: register them first") from None
