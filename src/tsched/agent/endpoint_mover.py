"""Engines that are known by their HTTP addresses, put to sleep through their own interface by the app backend.

What they hold is asked of the device's driver, for the processes that are on the roll, or else for those that listen
at the addresses. Where that cannot be seen an engine is not believed, and the order fails.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from anyio import to_thread

from tsched.agent.listeners import listeners_of
from tsched.agent.roll import Roll
from tsched.agent.state_file import Place
from tsched.backends.app import AppBackend, Engine
from tsched.backends.app.engine import TAGS, DialectName
from tsched.backends.app.engine import Mode as EngineMode
from tsched.backends.nvml import Nvml
from tsched.backends.process import Identity
from tsched.backends.process.identity import look
from tsched.backends.process.tree import living_tree
from tsched.errors import BackendError, Invalid
from tsched.llmd import agent_pb2 as pb

Holder = Callable[[Sequence[int]], Callable[[], int]]
"""For processes, a function that says how much device memory they hold."""

_DIALECTS: dict[pb.App.ValueType, DialectName] = {pb.APP_VLLM: "vllm", pb.APP_SGLANG: "sglang"}
_MODES: dict[pb.SuspendMode.ValueType, EngineMode] = {
    pb.SUSPEND_MODE_UNSPECIFIED: "offload",
    pb.SUSPEND_MODE_OFFLOAD: "offload",
    pb.SUSPEND_MODE_DISCARD: "discard",
}


def holder_of(nvml: Nvml | None) -> Holder:
    """What the driver says; without one, an error."""
    if nvml is not None:
        return nvml.holder

    def unseen(pids: Sequence[int]) -> Callable[[], int]:
        raise BackendError(
            "what an engine holds cannot be seen here, so that its sleep could not be believed: "
            "pip install 'tsched[nvidia]' on a host with the NVIDIA driver"
        )

    return unseen


class EndpointMover:
    """The app backend, told of an engine by each order that names one."""

    suspendable = False

    def __init__(self, backend: AppBackend, roll: Roll, holder: Holder) -> None:
        self._backend, self._roll, self._holder = backend, roll, holder
        self._told: dict[Place, tuple[bytes, list[Identity]]] = {}
        self.park, self.restore, self.discard = backend.park, backend.restore, backend.discard
        self.probe, self.sizes = backend.probe, backend.sizes

    async def tell(self, group: str, node: str, job: str, config: pb.AppEndpointConfig) -> None:
        """The job's engine is this one; told again, nothing changes. Raises `BackendError` where it cannot be moved."""
        roots = await to_thread.run_sync(self._roots, group, job, list(config.endpoints))
        told = config.SerializeToString(deterministic=True), roots
        place = group, node, job
        if self._told.get(place) == told:
            return
        pids = [process.pid for process in await to_thread.run_sync(living_tree, roots)]
        try:
            engine = _engine(config, tuple(pids), self._holder(pids))
        except Invalid as error:
            raise BackendError(f"job {job!r}: {error}") from None
        self._backend.register(group, node, job, engine)
        self._told[place] = told

    def _roots(self, group: str, job: str, endpoints: list[str]) -> list[Identity]:
        known = self._roll.living((group, job))
        if not known:
            seen = [look(pid) for endpoint in endpoints for pid in listeners_of(endpoint)]
            known = [each.identity for each in seen if each is not None]
        if not known:
            raise BackendError(
                f"job {job!r}: no process of this host listens at {', '.join(endpoints) or 'no endpoint'}, and none "
                "is registered: start the engine first, on this agent's host"
            )
        return known


def _engine(config: pb.AppEndpointConfig, pids: tuple[int, ...], held_bytes: Callable[[], int]) -> Engine:
    if config.app not in _DIALECTS:
        raise Invalid("app_endpoint: app must be APP_VLLM or APP_SGLANG")
    return Engine(
        dialect=_DIALECTS[config.app],
        endpoints=tuple(config.endpoints),
        held_bytes=held_bytes,
        mode=_MODES[config.mode],
        tags=tuple(config.tags) or TAGS,
        pids=pids,
    )
