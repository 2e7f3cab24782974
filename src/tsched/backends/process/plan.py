"""Suspending and resuming all processes of a job as one: every process takes a step before any takes the next.

A rank that waits in a collective for a peer that is locked and already checkpointed would wait for ever, so all are
locked first and only then checkpointed; all are restored first and only then unlocked. What stands where is asked of
the driver before each step, never remembered. When one process fails, the steps that were taken are taken back in
reverse order; where even that fails, the error says where every process stands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from msgspec import Struct

from tsched.backends.process.calls import Calls, Late
from tsched.backends.process.driver import CheckpointDriver, State
from tsched.backends.process.identity import Identity, lives
from tsched.backends.process.limits import Limits
from tsched.backends.process.tree import Members
from tsched.errors import BackendError


class Step(Struct, frozen=True):
    name: str
    before: State
    after: State
    undone_by: str


STEPS = MappingProxyType(
    {
        step.name: step
        for step in (
            Step("lock", State.RUNNING, State.LOCKED, "unlock"),
            Step("checkpoint", State.LOCKED, State.CHECKPOINTED, "restore"),
            Step("restore", State.CHECKPOINTED, State.LOCKED, "checkpoint"),
            Step("unlock", State.LOCKED, State.RUNNING, "lock"),
        )
    }
)
SUSPEND = (STEPS["lock"], STEPS["checkpoint"])
RESUME = (STEPS["restore"], STEPS["unlock"])
_ROUNDS = 5  # how often new processes may appear while a step is taken

Done = list[tuple[Step, list[Identity]]]


class Plan:
    """One job's processes and the driver that moves them. A process that has exited takes every step by itself.

    Args:
        holders: the job's processes that have a context on a device, as of now.
        alive: whether a process is still there.
    """

    def __init__(
        self,
        holders: Members,
        driver: CheckpointDriver,
        *,
        calls: Calls | None = None,
        limits: Limits | None = None,
        alive: Callable[[Identity], bool] = lives,
    ) -> None:
        self._holders, self._driver, self._alive = holders, driver, alive
        self._calls, self._limits = calls or Calls(), limits or Limits()

    def suspend(self) -> None:
        """Bring all to CHECKPOINTED; raises `BackendError` with every process back where it was."""
        self._carry(SUSPEND)

    def resume(self) -> None:
        """Bring all to RUNNING; raises like `suspend`."""
        self._carry(RESUME)

    def states(self) -> dict[Identity, State]:
        """Where each process stands, but for those that have exited or have a call under way."""
        asked = self._asked()
        return {process: state for process, state in asked.items() if state is not None and self._alive(process)}

    def _asked(self) -> dict[Identity, State | None]:
        return {each: self._driver.state(each.pid) for each in self._holders() if not self._calls.busy(each)}

    def _carry(self, steps: tuple[Step, ...]) -> None:
        self._calls.settle(self._holders(), max(map(self._limit_s, steps)))
        self._refuse_failed()
        done: Done = []
        try:
            for step in steps:
                self._take(step, done)
            self._expect(steps[-1].after)
        except BackendError as error:
            self._take_back(done, error)
            raise

    def _take(self, step: Step, done: Done) -> None:
        for _ in range(_ROUNDS):
            due = [process for process, state in self.states().items() if state is step.before]
            if not due:
                return
            failures = self._call(step, due, done)
            done.append((step, [process for process in due if process not in failures]))
            if failures:
                raise next(iter(failures.values()))

    def _expect(self, wanted: State) -> None:
        asked = self._asked()
        amiss = {process: state for process, state in asked.items() if state is not wanted and self._alive(process)}
        if amiss:
            raise BackendError(f"not every process is {wanted}: {_listing(amiss)}")

    def _refuse_failed(self) -> None:
        states = self.states()
        if State.FAILED in states.values():
            failed = {process: state for process, state in states.items() if state is State.FAILED}
            raise BackendError(f"{_listing(failed)}, and can never be moved again: discard the job")

    def _take_back(self, done: Done, error: BackendError) -> None:
        failures: dict[Identity, BackendError] = {}
        for step, processes in reversed(done):
            failures |= self._call(STEPS[step.undone_by], [each for each in processes if each not in failures], None)
        if failures:
            reasons = "; ".join(map(str, failures.values()))
            text = f"{error}; taking it back failed as well: {reasons}; now {self._where()}"
            raise type(error)(text) from error

    def _call(self, step: Step, processes: list[Identity], done: Done | None) -> dict[Identity, BackendError]:
        """Take one step. Who is late with it takes all back alone, later; without `done` it takes nothing back."""
        taken = {} if done is None else {each: [step, *_taken_by(each, done)] for each in processes}

        def act(process: Identity) -> None:
            self._one(step, process)

        def undo(process: Identity) -> None:
            for one in taken.get(process, ()):
                self._one(STEPS[one.undone_by], process)

        failures = self._calls.each(step.name, processes, act, undo=undo, limit_s=self._limit_s(step))
        for _, by in done or []:
            by[:] = [each for each in by if not isinstance(failures.get(each), Late)]
        return failures

    def _limit_s(self, step: Step) -> float:
        limit_s: float = getattr(self._limits, f"{step.name}_s")
        return 1.5 * limit_s if step.name == "lock" else limit_s  # the driver itself ends a lock in time

    def _one(self, step: Step, process: Identity) -> None:
        if not self._alive(process):
            return
        try:
            if step.name == "lock":
                self._driver.lock(process.pid, self._limits.lock_s)
            else:
                getattr(self._driver, step.name)(process.pid)
        except BackendError:
            if self._alive(process):
                raise

    def _where(self) -> str:
        try:
            busy = [f"process {each.pid} is still in the driver" for each in self._holders() if self._calls.busy(each)]
            return ", ".join([_listing(self.states()), *busy])
        except BackendError as error:
            return f"unknown ({error})"


def _taken_by(process: Identity, done: Done) -> list[Step]:
    """Its steps, the last one first."""
    return [step for step, by in reversed(done) if process in by]


def _listing(states: Mapping[Identity, State | None]) -> str:
    return ", ".join(
        f"process {process.pid} is {state or 'unknown to the driver'}" for process, state in states.items()
    )
