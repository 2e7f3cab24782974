"""How large a message, a name and a line of calls may be, and the channel options that hold it."""

from __future__ import annotations

from tsched.errors import Invalid

VERSION = 1
METHOD = "/tsched.v1.Scheduler/Attach"

MAX_MESSAGE_BYTES = 1 << 20
MAX_NAME_BYTES = 256
MAX_TEXT_BYTES = 4096
MAX_GROUPS = 64
MAX_TAGS = 64
MAX_CALLS = 256
MAX_UNREAD = 1024
MAX_WORKERS = 4096
MAX_STREAMS = 2 * MAX_WORKERS
MAX_DEAD = 1024
MAX_NUMBER = 2**63 - 1

# A pebibyte a worker: far beyond any, and the sum over all of them is still a number that everything can carry.
MAX_SIZE_BYTES = 1 << 50

Options = list[tuple[str, int]]

_SIZES: Options = [
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_metadata_size", 16 << 10),
]

# No keepalive on either side: a process that is frozen answers none, and is not dead.
# Without the two `max_pending_requests` a burst of new streams is answered with CANCELLED.
SERVER: Options = [
    *_SIZES,
    ("grpc.so_reuseport", 0),
    ("grpc.max_concurrent_streams", 16),
    ("grpc.server.max_pending_requests", 100_000),
    ("grpc.server.max_pending_requests_hard_limit", 200_000),
]

# Each worker keeps a connection of its own, and reconnects by itself, in its own time.
CLIENT: Options = [
    *_SIZES,
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 1000),
]


def check_size(what: str, size_bytes: int) -> None:
    """Raises `Invalid` for what is no size of a state."""
    if not 0 <= size_bytes <= MAX_SIZE_BYTES:
        raise Invalid(f"{what} must be >= 0, and at most {MAX_SIZE_BYTES}, not {size_bytes}")


def check_name(what: str, name: str, *, empty: bool = False) -> None:
    """A name that people and logs can bear; raises `Invalid`."""
    if not name and not empty:
        raise Invalid(f"{what} is empty: it needs a name")
    if len(name.encode()) > MAX_NAME_BYTES:
        raise Invalid(f"{what} {name[:32]!r}… has {len(name.encode())} bytes; at most {MAX_NAME_BYTES} are taken")
    if not name.isprintable():
        raise Invalid(f"{what} {name[:32]!r} has characters that cannot be printed")
