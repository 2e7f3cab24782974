"""What a job's inference engine is to the scheduler: where it answers, what it speaks, and how its memory is seen.

A value, checked when made. It sends nothing and knows no state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

from tsched.errors import Invalid, UnknownRegion

DialectName = Literal["vllm", "sglang"]
Mode = Literal["offload", "discard"]

WEIGHTS, KV_CACHE = "weights", "kv_cache"
TAGS = (WEIGHTS, KV_CACHE)
DIALECT_NAMES = ("vllm", "sglang")
MODES = ("offload", "discard")


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """One job's engine on one node.

    Args:
        dialect: whose sleep interface it has.
        endpoints: the addresses of its HTTP servers; several where it has several replicas, which sleep and wake
            together.
        held_bytes: says how much device memory all of its processes hold now; it is asked in a thread, and may be
            `Nvml().holder(pids)`. It is what a sleep is judged by.
        mode: `offload` keeps the weights in host memory; `discard` drops them, and they are loaded again at the wake.
        weights: `discard` alone: the path of the weights that the engine last had, or a callable that says it. A job
            that changed them by weight sync must have saved them there. vLLM may go without, and then loads those
            that it was started with.
        tags: the regions that go; a vLLM engine sleeps as a whole.
        asleep_bytes: what its processes rightly hold while it sleeps, such as the device context. It is counted for
            no job: leave it out of the group's capacity.
        drop_bytes: how much of the rest is cache, which nobody saves.
        pids: its processes, by which it is seen to live and is ended, their children included.
        alive, end: what does that instead, where the engine has no process here. `end` may be called again.
        free_bytes: says how much memory the device has left. With it a wake that cannot fit is refused before it
            begins.
        host_copies_bytes: says how much host memory the engine holds for its copies. With it, copies that an engine
            keeps after a wake are counted against the host limit.
        headers: sent with every call, such as an authorization.
        timeout_s: how long one call may take.
    """

    dialect: DialectName
    endpoints: tuple[str, ...]
    held_bytes: Callable[[], int]
    mode: Mode = "offload"
    weights: str | Callable[[], str] | None = None
    tags: tuple[str, ...] = TAGS
    asleep_bytes: int = 0
    drop_bytes: int = 0
    pids: tuple[int, ...] = ()
    alive: Callable[[], bool] | None = None
    end: Callable[[], None] | None = None
    free_bytes: Callable[[], int] | None = None
    host_copies_bytes: Callable[[], int] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 120.0

    def __post_init__(self) -> None:
        if self.dialect not in DIALECT_NAMES:
            raise Invalid(f"engine: no dialect {self.dialect!r}; there are: {', '.join(DIALECT_NAMES)}")
        if self.mode not in MODES:
            raise Invalid(f"engine: no mode {self.mode!r}; there are: {', '.join(MODES)}")
        self._check_endpoints()
        self._check_tags()
        for name in ("asleep_bytes", "drop_bytes"):
            if getattr(self, name) < 0:
                raise Invalid(f"engine: {name} must be >= 0, not {getattr(self, name)}")
        if not self.timeout_s > 0:
            raise Invalid(f"engine: timeout_s must be a number of seconds > 0, not {self.timeout_s!r}")
        if self.dialect == "sglang" and self.loses_weights and self.weights is None:
            raise Invalid("engine: SGLang loads discarded weights from a path that is named: give `weights`")

    @property
    def loses_weights(self) -> bool:
        """Whether a sleep leaves the engine without weights."""
        return self.mode == "discard" and WEIGHTS in self.tags

    def weights_path(self) -> str | None:
        return self.weights() if callable(self.weights) else self.weights

    def _check_endpoints(self) -> None:
        if not self.endpoints or len(set(self.endpoints)) != len(self.endpoints):
            raise Invalid(f"engine: endpoints must be distinct addresses, at least one, not {self.endpoints!r}")
        for endpoint in self.endpoints:
            if not _is_address(endpoint):
                raise Invalid(f"engine: an endpoint is an address such as 'http://host:8000', not {endpoint!r}")

    def _check_tags(self) -> None:
        for tag in self.tags:
            if tag not in TAGS:
                raise UnknownRegion(f"engine: no region {tag!r}; there are: {', '.join(TAGS)}")
        if not self.tags or len(set(self.tags)) != len(self.tags):
            raise Invalid(f"engine: tags must be distinct regions, at least one, not {self.tags!r}")
        if self.dialect == "vllm" and set(self.tags) != set(TAGS):
            raise Invalid(f"engine: a vLLM engine sleeps as a whole, not {self.tags!r} alone: leave `tags` out")


def _is_address(endpoint: str) -> bool:
    try:
        address = urlsplit(endpoint)
        return address.scheme in ("http", "https") and bool(address.hostname) and address.port != 0
    except ValueError:
        return False
