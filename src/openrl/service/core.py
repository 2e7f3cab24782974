"""What all parts of the service share: the store, the engine, who owns what, and how a request is taken in."""

from __future__ import annotations

import asyncio
import hashlib
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import structlog

from openrl.errors import Overloaded, RequestError, StoreError, Unknown
from openrl.service.engine import Engine
from openrl.service.held import Held
from openrl.service.inbox import Inbox
from openrl.service.ledger import Ledger
from openrl.service.lock import FolderLock
from openrl.service.recorder import Recorder
from openrl.service.settings import Settings
from openrl.service.tasks import Decode, Tasks
from openrl.store import Add, Change, Checkpoint, Model, Payload, Request, Sampler, Session, Store, Write
from openrl.work import Sample, Work
from openrl.worker import Base, Worker

_log = structlog.get_logger(__name__)
Owned = TypeVar("Owned", Session, Model, Sampler, Request, Checkpoint)
Clock = Callable[[], int]
_Slot = tuple[str, int]


class Core:
    """Not for users of the service, who find its parts in `Service`."""

    def __init__(
        self, store: Store, worker: Worker, decode: Decode, folder: Path, settings: Settings, clock: Clock
    ) -> None:
        self.store = store
        self.worker = worker
        self.settings = settings
        self.clock = clock
        self.checkpoints = folder / "checkpoints"
        self.states = folder / "states"
        self.lock = FolderLock(folder)
        self.bases: tuple[Base, ...] = ()
        self.inbox = Inbox()
        self.ledger = Ledger(store, settings.queue)
        self.recorder = Recorder(store, settings.store_retry_s)
        self.held = Held(settings.held_bytes)
        tasks = Tasks(store, worker, decode, self.states, self.held)
        self.engine = Engine(self.ledger, self.recorder, tasks, self.inbox, clock)
        self._uncompacted = 0
        self._arriving: dict[_Slot, tuple[Request, asyncio.Task[None]]] = {}

    async def start(self) -> None:
        self.states.mkdir(parents=True, exist_ok=True)
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        self.lock.acquire()
        await self.engine.start()
        self.bases = tuple(await self.engine.call(self.worker.bases))

    async def record(self, *writes: Write) -> None:
        """Kept when this returns; `StoreError` if it cannot be."""
        await self.recorder.put(writes)

    def owned(self, kind: type[Owned], key: str, owner: str) -> Owned:
        """The row, if this owner may see it. What is somebody else's looks as if it were not there."""
        found = self.store.get(kind, key)
        if found is None or found.owner != owner:
            raise Unknown(f"{_NAMES[kind]} {key!r} is not known: it was never made, was deleted, or is not yours")
        return found

    async def take(
        self, request: Request, payload: bytes, work: Work | Sample | None, sampler: Sampler | None, *also: Write
    ) -> str:
        """Keep a request, put it in line, and give its id; for one that is known already, the id it got then."""
        slot = (request.model_id or request.sampler_id or "", request.seq)
        known = await self._known(request, slot)
        if known is not None:
            return known
        self._check_room(request)
        keeping = asyncio.get_running_loop().create_task(self._keep(request, payload, work, sampler, also))
        self._arriving[slot] = (request, keeping)
        keeping.add_done_callback(lambda _: self._arriving.pop(slot))
        await asyncio.shield(keeping)  # who sent it may go away; it is kept all the same
        return request.request_id

    def new_request(self, owner: str, seq: int, kind: str, payload: bytes, model_id: str | None = None) -> Request:
        """A request as it first is. Its digest is what a duplicate is compared by."""
        digest = hashlib.blake2b(payload, digest_size=16, person=kind.encode()[:16]).digest()
        return Request(uuid.uuid4().hex, owner, seq, kind, digest, self.clock(), model_id)

    async def _keep(
        self,
        request: Request,
        payload: bytes,
        work: Work | Sample | None,
        sampler: Sampler | None,
        also: tuple[Write, ...],
    ) -> None:
        if work is not None and request.state == "waiting":
            self.held.keep(request.request_id, work, len(payload))
        then: Callable[[], None]
        if sampler is not None:
            then = partial(self.engine.sample_accepted, request, sampler)
        else:
            then = partial(self.engine.accepted, request)
        body = [Add(Payload(request.request_id, payload))] if request.state == "waiting" else []
        _log.debug("request_accepted", request_id=request.request_id, model_id=request.model_id, seq=request.seq)
        self._compact_now_and_then(len(payload))
        try:
            await self.recorder.put([*also, Add(request), *body, *self._touched(request)], then)
        except StoreError:
            self.held.drop(request.request_id)
            raise

    def _compact_now_and_then(self, size_bytes: int) -> None:
        self._uncompacted += size_bytes
        if self._uncompacted > self.settings.compact_bytes:
            self._uncompacted = 0
            asyncio.get_running_loop().run_in_executor(None, self.store.compact)

    async def _known(self, request: Request, slot: _Slot) -> str | None:
        if slot in self._arriving:
            first, keeping = self._arriving[slot]
            _check_same(first, request, slot)
            await asyncio.shield(keeping)
            return first.request_id
        target: dict[str, Any] = {"model_id": slot[0]} if request.model_id else {"sampler_id": slot[0]}
        for found in self.store.find(Request, limit=1, **target, seq=request.seq):
            _check_same(found, request, slot)
            return found.request_id
        return None

    def _check_room(self, request: Request) -> None:
        queue, most = self.ledger.queue, self.settings.most_waiting
        waiting = queue.waiting_units() if request.model_id else queue.waiting_samples()
        if waiting >= most:
            raise Overloaded(
                f"{waiting} requests wait, and {most} may: send this one again when some have been answered"
            )

    def _touched(self, request: Request) -> list[Write]:
        if request.model_id is None or request.seq == 0:
            return []
        return [Change(Model, request.model_id, {"last_request_us": request.created_us})]


def _check_same(first: Request, request: Request, slot: _Slot) -> None:
    if first.digest != request.digest:
        raise RequestError(
            f"request {slot[1]} of {slot[0]} was sent before with other content: a retry repeats it, "
            "a new request takes the next number"
        )


_NAMES: dict[type, str] = {
    Session: "session",
    Model: "model",
    Sampler: "sampling session",
    Request: "request",
    Checkpoint: "checkpoint",
}


def refused(request: Request, error: str, now_us: int) -> Request:
    """The same request with its answer: what was asked for cannot be."""
    return msgspec.structs.replace(request, state="failed", error=error, category="user", answered_us=now_us)
