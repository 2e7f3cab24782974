"""From tsched's own values to messages of the protocol and back. Errors travel as a code and their text."""

from __future__ import annotations

from tsched import errors
from tsched.backends import Order, Presence, Sizes
from tsched.costs import MoveKind
from tsched.lease import Lease
from tsched.rpc.limits import MAX_TEXT_BYTES
from tsched.rpc.processes import Process
from tsched.rpc.v1 import worker_pb2 as pb

_ERRORS: dict[str, type[errors.TschedError]] = {
    "invalid": errors.Invalid,
    "unknown_group": errors.UnknownGroup,
    "unknown_job": errors.UnknownJob,
    "duplicate_job": errors.DuplicateJob,
    "never_fits": errors.NeverFits,
    "deadlock": errors.WouldDeadlock,
    "quarantined": errors.JobQuarantined,
    "lease_lost": errors.LeaseLost,
    "scheduler_closed": errors.SchedulerClosed,
    "journal": errors.JournalError,
    "stale_token": errors.StaleToken,
    "host_memory_full": errors.HostMemoryFull,
    "device_memory_full": errors.DeviceMemoryFull,
    "unknown_region": errors.UnknownRegion,
    "process_gone": errors.ProcessGone,
    "missing_driver": errors.MissingDriver,
    "missing_extra": errors.MissingExtra,
    "backend": errors.BackendError,
}
_CODES = {kind: code for code, kind in _ERRORS.items()}

KINDS: dict[MoveKind, pb.Kind.ValueType] = {
    "park": pb.KIND_PARK,
    "restore": pb.KIND_RESTORE,
    "discard": pb.KIND_DISCARD,
}
MOVES: dict[pb.Kind.ValueType, MoveKind] = {number: kind for kind, number in KINDS.items()}


def failure(error: BaseException) -> pb.Failure:
    """What the other side needs to raise the same error."""
    return pb.Failure(code=_code(error), text=_cut(str(error) or type(error).__name__))


def as_error(message: pb.Failure) -> errors.TschedError:
    """The typed error; a code that is not known becomes an `AcquireRefused` that carries it."""
    text = _cut(message.text)
    kind = _ERRORS.get(message.code)
    if kind is None:
        return errors.AcquireRefused(text, message.code)
    return kind(text, message.code) if issubclass(kind, errors.AcquireRefused) else kind(text)


def as_backend_error(message: pb.Failure) -> errors.BackendError:
    """The same, where a backend failed: whatever it raised, it is a `BackendError` here."""
    error = as_error(message)
    return error if isinstance(error, errors.BackendError) else errors.BackendError(str(error))


def _cut(text: str) -> str:
    """As much as is sent or kept; what cannot be written in UTF-8, as in some names of files, is replaced."""
    return text.encode(errors="replace")[:MAX_TEXT_BYTES].decode(errors="ignore")


def _code(error: BaseException) -> str:
    if isinstance(error, errors.AcquireRefused):
        return error.code or "refused"
    for kind in type(error).__mro__:
        if kind in _CODES:
            return _CODES[kind]
    return "internal"


def nothing(kind: pb.Kind.ValueType) -> pb.Answer:
    """The answer of a worker that has nothing to move."""
    match kind:
        case pb.KIND_PROBE:
            return pb.Answer(presence=pb.Presence(alive=True))
        case pb.KIND_SIZES:
            return pb.Answer(sizes=pb.Sizes())
        case _:
            return pb.Answer(done=pb.Done())


def order_message(number: int, kind: pb.Kind.ValueType, order: Order, deadline_us: int = 0) -> pb.ToWorker:
    return pb.ToWorker(
        order=pb.Order(
            number=number,
            kind=kind,
            group=order.group,
            node=order.node,
            job=order.job,
            op=order.op,
            token=order.token,
            size_bytes=order.size_bytes,
            count=order.number,
            deadline_us=deadline_us,
        )
    )


def order_of(message: pb.Order) -> Order:
    count = message.count if message.HasField("count") else None
    return Order(message.op, message.group, message.node, message.job, message.token, message.size_bytes, count)


def presence_message(seen: Presence) -> pb.Presence:
    return pb.Presence(resident_bytes=seen.resident_bytes, parked_bytes=seen.parked_bytes, alive=seen.alive)


def presence_of(message: pb.Presence) -> Presence:
    """Raises `BackendError` for what no device can hold."""
    _check_bytes(message.resident_bytes, message.parked_bytes)
    return Presence(message.resident_bytes, message.parked_bytes, message.alive)


def sizes_message(sizes: Sizes) -> pb.Sizes:
    return pb.Sizes(save_bytes=sizes.save_bytes, drop_bytes=sizes.drop_bytes, shared_bytes=sizes.shared_bytes)


def sizes_of(message: pb.Sizes) -> Sizes:
    """Raises `BackendError` for what no device can hold."""
    _check_bytes(message.save_bytes, message.drop_bytes, message.shared_bytes)
    return Sizes(message.save_bytes, message.drop_bytes, message.shared_bytes)


def _check_bytes(*sizes: int) -> None:
    if min(sizes) < 0:
        raise errors.BackendError(f"a worker counted less than no bytes: {sizes}")


def process_message(process: Process) -> pb.Process:
    return pb.Process(pid=process.pid, started=process.started, host=process.host)


def process_of(message: pb.Process) -> Process:
    return Process(message.pid, message.started, message.host)


def grant_message(lease: Lease, ttl_s: float | None) -> pb.Grant:
    return pb.Grant(
        lease=lease.id,
        phase=lease.phase,
        tokens=dict(lease.tokens),
        waited_s=lease.waited_s,
        restored=lease.restored,
        ttl_s=ttl_s,
    )


def changed_message(lease: Lease) -> pb.ToWorker:
    changed = pb.LeaseChanged(
        lease=lease.id, tokens=dict(lease.tokens), suspended=lease.suspended, lost=lease.lost_reason
    )
    return pb.ToWorker(changed=changed)
