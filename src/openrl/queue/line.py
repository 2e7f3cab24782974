"""The line of one model: its units by sequence number, and which step is next. Pure: no clock, no I/O.

Theory of operation. Three numbers say where a model stands, each the last unit that it includes:

    durable <= position <= applied

`durable` is what the state on disk holds, `position` what the copy in a worker's memory holds (None: there is no copy),
`applied` how far units have been answered. Whenever position lags behind applied, the units between are run silently:
they have their answers. Only when both are equal does a new unit run, and only the one that follows directly; one that
came early waits in `units` for the gap to fill. Units that failed, and those that change nothing, are passed over.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from openrl.queue.steps import Answered, BringBack, Drop, Effect, Failed, Lost, Persist, Persisted, Run, Status, Step

NOTHING = -1


@dataclass(slots=True)
class Unit:
    """One request in a model's line. `settles`: the state is made durable directly after it."""

    seq: int
    request_id: str
    digest: bytes
    mutates: bool = True
    settles: bool = False
    status: Status = "waiting"


@dataclass(frozen=True, slots=True)
class Limits:
    """When state is made durable, how often a unit may kill a worker, and how large a batch of samples is."""

    replay_units: int = 64
    replay_us: int = 5_000_000
    deaths: int = 3
    restarts: int = 10
    batch_sequences: int = 64


@dataclass(slots=True)
class Line:
    """`deaths` counts workers lost to the head since the last progress, `setbacks` those lost on the way to it.

    `attempts` and `recoveries` count the same for lives of the whole service.
    """

    model_id: str
    limits: Limits
    durable: int = NOTHING
    applied: int = NOTHING
    position: int | None = None
    worker: str | None = None
    leased: Step | None = None
    units: dict[int, Unit] = field(default_factory=dict)
    lost: Failed | None = None
    releasing: bool = False
    deaths: int = 0
    setbacks: int = 0
    attempts: int = 0
    recoveries: int = 0
    unpersisted: int = 0  # units since the last attempt at durable state, and what they cost
    unpersisted_us: int = 0
    settling: bool = False

    def add(self, unit: Unit) -> None:
        """Take a unit in, whatever its status; `applied` moves over those that have their answer."""
        self.units[unit.seq] = unit
        self.releasing = False
        self._advance()

    def head(self) -> Unit | None:
        """The next unit to be answered, if it has arrived."""
        return self.units.get(self.applied + 1)

    def waiting(self) -> list[Unit]:
        return [unit for unit in self.units.values() if unit.status == "waiting"]

    def next_step(self) -> Step | None:
        if self.leased is not None:
            return None
        if self.lost:
            return None if self.position is None else Drop(self.model_id)
        if self.position is None:
            return self._first_step() if self.head() else None
        if self.position < self.applied:
            return self._run(self.units[self.position + 1], silent=True)
        if self._is_due():
            return Persist(self.model_id, self.position)
        head = self.head()
        if head is not None:
            return self._run(head)
        return self._leave() if self.releasing else None

    def ran(self, step: Run, failed: Failed | None, cost_us: int) -> list[Effect]:
        """The worker carried unit `seq` out, or said why not. The answer of a silent one is of no interest."""
        unit = self.units[step.seq]
        if step.silent:
            return self.lose(Failed(_differs(step, failed))) if failed else self._moved(unit, cost_us)
        effects = [Answered(unit.request_id, failed), *self._answered(unit, failed)]
        return effects if self.lost else effects + self._moved(unit, cost_us)

    def fail(self, unit: Unit, failed: Failed) -> list[Effect]:
        """A unit that waits is answered without being run."""
        return [Answered(unit.request_id, failed), *self._answered(unit, failed)]

    def brought_back(self, failed: Failed | None) -> list[Effect]:
        if failed:
            return self.lose(failed)
        self.position = self.durable
        self._pass_over()
        return []

    def persisted(self, step: Persist, failed: Failed | None) -> list[Effect]:
        """What is durable need not be kept. A failure changes nothing: the next attempt comes after as much work."""
        self.unpersisted = self.unpersisted_us = 0
        self.settling = False
        if failed:
            return []
        self.durable = step.seq
        self._progress()
        for seq in [seq for seq in self.units if seq <= step.seq]:
            del self.units[seq]
        return [Persisted(self.model_id, step.seq)]

    def dropped(self) -> None:
        self.position = self.worker = None
        self.releasing = False
        self.unpersisted = self.unpersisted_us = 0
        self.settling = False

    def worker_died(self) -> list[Effect]:
        """The copy is gone. A step that took the worker with it too often is given up, as its kind requires."""
        step, self.leased = self.leased, None
        releasing = self.releasing
        self.dropped()
        self.releasing = releasing and not isinstance(step, Drop)
        if step is None:
            return []
        if isinstance(step, Run) and not step.silent:
            self.deaths, self.setbacks = self.deaths + 1, 0
        else:
            self.setbacks += 1
        return self._give_up(step) if max(self.deaths, self.setbacks) >= self.limits.deaths else []

    def lose(self, failed: Failed) -> list[Effect]:
        """The model is gone for good, and with it whatever waits in its line."""
        self.lost = failed
        effects: list[Effect] = [Lost(self.model_id, failed)]
        for unit in self.waiting():
            effects += self.refuse(unit)
        return effects

    def refuse(self, unit: Unit) -> list[Effect]:
        """A unit that waits in the line of a lost model fails."""
        assert self.lost is not None
        unit.status = "failed"
        text = f"model {self.model_id} is not available: {self.lost.error}"
        return [Answered(unit.request_id, Failed(text, self.lost.category))]

    def check(self) -> None:
        """Raise AssertionError where the numbers contradict each other."""
        position = self.applied if self.position is None else self.position
        if not self.lost:
            assert self.durable <= position <= self.applied, f"{self}"
            assert all(seq in self.units for seq in range(self.durable + 1, self.applied + 1)), f"{self}"

    def _first_step(self) -> Step:
        if self.durable != NOTHING:
            return BringBack(self.model_id, self.durable)
        return self._run(self.units[0], silent=self.units[0].status == "done")

    def _run(self, unit: Unit, *, silent: bool = False) -> Run:
        return Run(self.model_id, unit.seq, unit.request_id, silent)

    def _leave(self) -> Step:
        assert self.position is not None
        return Persist(self.model_id, self.position) if self.unpersisted else Drop(self.model_id)

    def _is_due(self) -> bool:
        much = self.unpersisted >= self.limits.replay_units or self.unpersisted_us >= self.limits.replay_us
        return self.unpersisted > 0 and (much or self.settling)

    def _answered(self, unit: Unit, failed: Failed | None) -> list[Effect]:
        unit.status = "failed" if failed else "done"
        self._progress()
        self._advance()
        return self.lose(failed) if failed and unit.seq == 0 else []

    def _moved(self, unit: Unit, cost_us: int) -> list[Effect]:
        """The copy in memory now includes this unit."""
        self.position = unit.seq
        if unit.status == "done":
            self.unpersisted += unit.mutates
            self.unpersisted_us += cost_us * unit.mutates
            self.settling |= unit.settles
        self._pass_over()
        return []

    def _advance(self) -> None:
        while (unit := self.units.get(self.applied + 1)) is not None and unit.status != "waiting":
            self.applied += 1
        self._pass_over()

    def _pass_over(self) -> None:
        while self.position is not None and self.position < self.applied:
            unit = self.units[self.position + 1]
            if unit.status == "done" and unit.mutates:
                return
            self.position += 1

    def _progress(self) -> None:
        self.deaths = self.setbacks = self.attempts = self.recoveries = 0

    def _give_up(self, step: Step) -> list[Effect]:
        text = f"the worker died {self.limits.deaths} times in a row"
        match step:
            case Run(seq=seq, silent=False):
                return self.fail(self.units[seq], Failed(f"{text} on this request: it is given up"))
            case Drop():
                return []
        return self.lose(Failed(f"{text} while it brought this model back or made its state durable"))


def _differs(step: Run, failed: Failed) -> str:
    return (
        f"model {step.model_id} cannot be brought back: request {step.seq}, which had succeeded, failed when it was "
        f"run again after a crash: {failed.error}"
    )
