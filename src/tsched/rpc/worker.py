"""The worker's side of the channel: a process says who it is, takes turns, and obeys orders about its state.

    worker = Worker.connect("unix:/run/tsched.sock", job="a", group="trainers", backend=regions)
    with worker.hold(phase="train", estimate_s=30):
        ...
    worker.close()

Synchronous, for training loops; every method may be called from any thread. A connection that breaks is opened again
in the background, and leases and waiting requests go on with it. It never ends a process, and moves no state unless it
is ordered to, but that `close` drops what the job leaves behind.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from typing import Self

from tsched.backends import Backend
from tsched.errors import BackendError, ChannelClosed, Invalid, LeaseLost, TschedError
from tsched.rpc import open_workers, processes
from tsched.rpc.address import parse
from tsched.rpc.dialogue import Dialogue
from tsched.rpc.heartbeat import Heartbeat
from tsched.rpc.limits import MAX_NUMBER, VERSION
from tsched.rpc.obedience import Obedience
from tsched.rpc.v1 import worker_pb2 as pb
from tsched.rpc.wire import nothing, process_message
from tsched.rpc.worker_lease import WorkerLease

__all__ = ["Worker", "WorkerLease"]

CLOSE_S = 5.0


class Worker:
    """One worker process of one job; made by `connect`."""

    def __init__(self, address: str, hello: pb.Hello, backend: Backend | None, timeout_s: float) -> None:
        job, group, node = self.job, self.group, self.node = hello.job, hello.group, hello.node
        self.client = hello.client
        self.address = str(parse(address))
        self._hello, self._timeout_s = hello, timeout_s
        self._pid = os.getpid()
        # Larger than those of an earlier process of this client, so that its requests are not taken for these.
        self._requests = count(time.time_ns() // 1_000_000 * 1_000)
        self._closed = False
        self._dialogue = Dialogue(parse(address), hello, self._obey, timeout_s)
        self._heartbeat = Heartbeat(self._dialogue.leases, self._beat)
        self._obedience = None if backend is None else Obedience(backend, (group, node, job), self._dialogue.send)

    @classmethod
    def connect(
        cls,
        address: str,
        *,
        job: str,
        group: str,
        node: str = "0",
        backend: Backend | None = None,
        client: str | None = None,
        owner: str = "",
        weight: float = 1.0,
        state_bytes: int | None = None,
        turn_bytes: int | None = None,
        tags: Sequence[str] = (),
        timeout_s: float = 30.0,
    ) -> Self:
        """Connect this process, as a worker of `job` on one node of a group, and register the job if it is new.

        Args:
            address: `unix:/path.sock` or `host:port`.
            backend: carries out orders about this job's state in this process; without one nothing is moved.
            client: names this worker over reconnections; a new name by default.
            state_bytes, turn_bytes: what this worker keeps between turns, and needs besides during one. Where the
                backend measures more at the end of a turn, that counts; less does not, since state may yet grow.
            tags: the regions that this worker's state is made of.
            timeout_s: how long the scheduler may be out of reach, now and later.

        Raises:
            ChannelClosed: nobody answers there, or this process was forked from a connected one.
            Invalid, UnknownGroup, DuplicateJob: the scheduler does not take this worker, and why.
        """
        open_workers.check_not_forked()
        hello = pb.Hello(
            version=VERSION,
            client=client or f"{job[:64]}/{group[:64]}/{node[:64]}/{uuid.uuid4().hex[:12]}",
            job=job,
            group=group,
            node=node,
            owner=owner,
            weight=weight,
            state_bytes=state_bytes,
            turn_bytes=turn_bytes,
            process=process_message(processes.this_process()),
            capabilities=pb.Capabilities(
                moves=backend is not None, suspendable=backend is not None and backend.suspendable, tags=tags
            ),
        )
        worker = cls(address, hello, backend, timeout_s)
        try:
            open_workers.add(worker)
            worker._dialogue.start()
        except BaseException:
            worker._end()
            raise
        return worker

    def __enter__(self) -> Self:
        return self

    def __exit__(self, exc_type: type[BaseException] | None, *_: object) -> None:
        self.close(done=exc_type is None)

    def __repr__(self) -> str:
        return f"<Worker {self.client!r} of job {self.job!r} on {self.group}/{self.node} at {self.address}>"

    # ------------------------------------------------------------------- turns

    def acquire(
        self,
        groups: str | Sequence[str] | None = None,
        *,
        phase: str = "",
        estimate_s: float | None = None,
        remaining_s: float | None = None,
        within: WorkerLease | int | None = None,
        ttl_s: float | None = None,
        request: int | None = None,
        timeout_s: float | None = None,
    ) -> WorkerLease:
        """Wait for the exclusive use of this worker's group, or of `groups`, all at once.

        Args:
            within: the lease that the caller holds meanwhile.
            ttl_s: the lease ends when this process does not renew it as often, which it does by itself.
            request: names the request: the same number again is the same request.
            timeout_s: gives up after so long, and leaves the line.

        Raises:
            UnknownGroup, UnknownJob, NeverFits, WouldDeadlock, JobQuarantined, AcquireRefused: never granted, and why.
            DeviceMemoryFull: the device has no room for what the last turn dropped; the turn is given back.
            ChannelClosed: the scheduler is out of reach, or this worker was closed.
        """
        names = (self.group,) if groups is None else (groups,) if isinstance(groups, str) else tuple(groups)
        number = next(self._requests) if request is None else request
        if not 0 <= number <= MAX_NUMBER:
            raise Invalid(f"request must be a number from 0 to {MAX_NUMBER}, not {number!r}")
        message = pb.Acquire(
            request=number,
            groups=names,
            phase=phase,
            estimate_s=estimate_s,
            remaining_s=remaining_s,
            within=within.id if isinstance(within, WorkerLease) else within,
            ttl_s=ttl_s,
        )
        call = self._dialogue.ask(pb.FromWorker(acquire=message), timeout_s, f"a turn on {', '.join(names)}")
        assert call.lease is not None
        self._heartbeat.mind(call.lease)
        if self.group in names and self._obedience is not None:
            try:
                self._obedience.refill()
            except BaseException:
                with suppress(TschedError):
                    self._give_back(call.lease, (), pb.Release())
                raise
        return call.lease

    def release(self, lease: WorkerLease, groups: str | Sequence[str] = ()) -> None:
        """Give back a lease, or `groups` of it, after the backend has dropped what need not stay.

        Raises:
            LeaseLost: it ended before, by time or by force.
            DeviceMemoryFull: what stays has outgrown the device; the lease is still held.
        """
        names = (groups,) if isinstance(groups, str) else tuple(groups)
        if lease.lost_reason is not None:
            raise _lost(lease)
        for name in names:
            if name not in lease.tokens:
                raise Invalid(f"{lease} is not on group {name!r}")
        self._give_back(lease, names, self._trimmed(names or lease.groups))

    @contextmanager
    def hold(
        self,
        groups: str | Sequence[str] | None = None,
        *,
        phase: str = "",
        estimate_s: float | None = None,
        remaining_s: float | None = None,
        within: WorkerLease | int | None = None,
        ttl_s: float | None = None,
        request: int | None = None,
        timeout_s: float | None = None,
    ) -> Iterator[WorkerLease]:
        """Acquire, run the body, release, whatever becomes of the body or of the state.

        Raises:
            LeaseLost: the lease ended before the body did.
            DeviceMemoryFull: what stays has outgrown the device; the turn is given back, and no state beside it.
            and all that `acquire` raises.
        """
        lease = self.acquire(
            groups,
            phase=phase,
            estimate_s=estimate_s,
            remaining_s=remaining_s,
            within=within,
            ttl_s=ttl_s,
            request=request,
            timeout_s=timeout_s,
        )
        try:
            yield lease
            if lease.groups or lease.lost_reason is not None:
                self.release(lease)
        except BaseException:
            with suppress(TschedError):
                self._leave(lease)
            raise

    def renew(self, lease: WorkerLease) -> None:
        """The holder is alive: the lease's time to live starts anew. Raises `LeaseLost` where it has ended."""
        if lease.lost_reason is not None:
            raise _lost(lease)
        self._dialogue.ask(pb.FromWorker(renew=pb.Renew(lease=lease.id)), None, f"the renewal of {lease}")

    def close(self, done: bool = True) -> None:
        """Leave: give back what is held, and drop the job's state here. Not an error when it is closed already.

        Args:
            done: the job has finished with this worker. Without it the scheduler waits a while for the worker to come
                back, and then gives the job up.

        Raises:
            BackendError: the state could not be dropped; the scheduler waits for this process to end.
        """
        if self._closed or os.getpid() != self._pid:
            return
        error = self._drop() if done and self._dialogue.error is None else None
        with suppress(TschedError):
            goodbye = pb.Goodbye(done=done and error is None)
            self._dialogue.ask(pb.FromWorker(goodbye=goodbye), min(CLOSE_S, self._timeout_s), "goodbye")
        self._end()
        if error is not None:
            raise error

    def end_quietly(self) -> None:
        """The interpreter ends: say so, and let daemon threads that wait here go on waiting until it has."""
        if os.getpid() == self._pid:
            self._dialogue.forget_calls()
            self.close(done=False)

    # ------------------------------------------------------------------ asking

    def _give_back(self, lease: WorkerLease, names: tuple[str, ...], measured: pb.Release) -> None:
        measured.lease = lease.id
        measured.groups.extend(names)
        self._dialogue.ask(pb.FromWorker(release=measured), None, f"the release of {lease}")
        lease.give_back(names)
        if not lease.groups:
            self._dialogue.forget(lease)

    def _leave(self, lease: WorkerLease) -> None:
        """Give the lease back whatever has become of the state, since its holder does not go on."""
        if not lease.groups:
            return
        try:
            measured = self._trimmed(lease.groups)
        except Exception:  # the backend is foreign code
            measured = pb.Release(unmeasured=True)
        self._give_back(lease, (), measured)

    def _trimmed(self, groups: Sequence[str]) -> pb.Release:
        """What stays, as measured; what was declared is kept free even while the state is still smaller."""
        if self._obedience is None or self.group not in groups:
            return pb.Release()
        stays = self._obedience.trim()
        return pb.Release() if stays is None else pb.Release(state_bytes=max(stays, self._hello.state_bytes))

    def _drop(self) -> BackendError | None:
        if self._obedience is not None:
            try:
                self._obedience.drop(self._timeout_s)
            except BackendError as error:
                return error
        return None

    def _end(self) -> None:
        self._closed = True
        open_workers.remove(self)
        self._dialogue.close(ChannelClosed(f"{self!r} was closed"))
        self._heartbeat.close()
        if self._obedience is not None:
            self._obedience.close(CLOSE_S)

    def _beat(self, lease: WorkerLease) -> None:
        self._dialogue.send(pb.FromWorker(renew=pb.Renew(lease=lease.id)))

    def _obey(self, order: pb.Order) -> None:
        if self._obedience is not None:
            self._obedience.obey(order)
            return
        answer = nothing(order.kind)
        answer.number = order.number
        self._dialogue.send(pb.FromWorker(answer=answer))


def _lost(lease: WorkerLease) -> LeaseLost:
    return LeaseLost(f"lease {lease.id} of job {lease.job!r} was lost: {lease.lost_reason}")
