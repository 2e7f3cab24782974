"""Which backend moves the states of which group on this host; each is made when it is first needed."""

from __future__ import annotations

from collections.abc import Mapping

from tsched.agent.config import Config
from tsched.agent.losses import Losses
from tsched.agent.process_mover import ProcessMover
from tsched.agent.roll import Roll
from tsched.backends import Backend
from tsched.backends.nvml import Nvml
from tsched.backends.process import ProcessBackend
from tsched.plugins import load_backend


class Stock:
    """Backends by group, one for each spec: groups of one spec share it.

    Args:
        ready: backends that are made already, by group; "" is for all other groups.
    """

    def __init__(
        self,
        config: Config,
        roll: Roll,
        losses: Losses,
        nvml: Nvml | None,
        ready: Mapping[str, Backend] | None = None,
    ) -> None:
        self._config, self._roll, self._losses, self._nvml = config, roll, losses, nvml
        self._ready = dict(ready or {})
        self._made: dict[str, Backend] = {}

    def of(self, group: str) -> Backend:
        """Raises `UnknownPlugin` or `Invalid` for a backend that cannot be made."""
        given = self._ready.get(group, self._ready.get(""))
        if given is not None:
            return given if not isinstance(given, ProcessBackend) else self._processes_of(given)
        named = self._config.groups.get(group)
        spec = self._config.backend if named is None else named.backend
        if spec not in self._made:
            self._made[spec] = self._make(spec)
        return self._made[spec]

    def processes_of(self, group: str) -> ProcessMover | None:
        """What moves the group's processes; None where the group has a backend of another kind."""
        found = self.of(group)
        return found if isinstance(found, ProcessMover) else None

    def check(self) -> None:
        """Make every backend that is configured; raises what `of` raises."""
        for group in ("", *self._config.groups):
            self.of(group)

    def _make(self, spec: str) -> Backend:
        if spec == "process" and self._nvml is not None:
            return ProcessMover(ProcessBackend(gpu_pids=self._nvml.processes), self._roll, self._losses)
        made: Backend = load_backend(spec)
        return ProcessMover(made, self._roll, self._losses) if isinstance(made, ProcessBackend) else made

    def _processes_of(self, backend: ProcessBackend) -> ProcessMover:
        key = f"given {id(backend)}"
        if key not in self._made:
            self._made[key] = ProcessMover(backend, self._roll, self._losses)
        mover = self._made[key]
        assert isinstance(mover, ProcessMover)
        return mover
