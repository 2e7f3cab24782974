"""Playbooks: event in, expected commands out, time in between.

    Playbook([Group("g", lease_ttl_us=30)]).send(JobAdded(Job("a")), ask).expect(like(Grant, job="a")).at(30).expect(
        like(Revoke, lease=1), like(Park, job="a")
    )

A playbook reads like a story and is as strict as a log: `expect` covers every command since the last one, in order.
Only `Select` and `WakeAt`, which nobody outside acts on in a test, may be passed over in silence. After every event
the `Witness` and the structural invariants have their say too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Self

from tsched.commands import Command, Select, WakeAt
from tsched.engine import REATTACH_US, Engine
from tsched.events import Event, Restarted, Woke
from tsched.model import Group
from tsched.policies import Policy
from tsched.policies.fifo import Fifo
from tsched.testing.structure import check_structure
from tsched.testing.witness import Witness

_QUIET = (Select, WakeAt)


class Like:
    """A command of one kind, of which only the given fields matter; made by `like`."""

    def __init__(self, kind: type[Command], fields: dict[str, Any]) -> None:
        unknown = set(fields) - set(kind.__struct_fields__)
        if unknown:
            known = ", ".join(kind.__struct_fields__)
            raise TypeError(f"{kind.__name__} has no field {min(unknown)!r}; it has {known}")
        self.kind = kind
        self.fields = fields

    def matches(self, command: Command) -> bool:
        return type(command) is self.kind and all(
            getattr(command, name) == value for name, value in self.fields.items()
        )

    def __repr__(self) -> str:
        return f"{self.kind.__name__}({', '.join(f'{name}={value!r}' for name, value in self.fields.items())}, …)"


def like(kind: type[Command], **fields: Any) -> Like:
    """Expect a command of this kind with these fields, whatever its others are."""
    return Like(kind, fields)


Expected = Command | Like


class Playbook:
    """One engine, told what happens and held to what it should answer. Methods return the playbook, to be chained.

    `policy` defaults to first come, first served. Time is in microseconds and starts at 0.
    """

    def __init__(
        self, groups: Iterable[Group], policy: Policy | None = None, *, reattach_us: int = REATTACH_US
    ) -> None:
        self.groups = tuple(groups)
        self.policy = policy if policy is not None else Fifo()
        self.reattach_us = reattach_us
        self.engine = self._engine()
        self.witness = Witness(self.groups)
        self.now = 0
        self.log: list[tuple[int, Event, tuple[Command, ...]]] = []
        self._seen = 0

    def _engine(self) -> Engine:
        return Engine(self.groups, self.policy, reattach_us=self.reattach_us)

    # what happens

    def send(self, *events: Event) -> Self:
        """These events happen now, one after another."""
        for event in events:
            commands = tuple(self.engine.handle(event, self.now))
            self.log.append((self.now, event, commands))
            self.witness.saw(event, commands)
            check_structure(self.engine.state)
        return self

    def at(self, now_us: int) -> Self:
        """It becomes `now_us`; on the way the engine is woken whenever it asked to be."""
        if now_us < self.now:
            raise ValueError(f"time cannot go back from {self.now} to {now_us}")
        while (due := self.engine.wake_at()) is not None and due <= now_us:
            self.now = max(self.now, due)
            self.send(Woke())
        self.now = now_us
        return self

    def after(self, passed_us: int) -> Self:
        """So much time passes."""
        return self.at(self.now + passed_us)

    def crash(self) -> Self:
        """The scheduler dies and is started again from a snapshot: a fresh engine is told `Restarted`."""
        data = json.loads(json.dumps(self.engine.snapshot()))
        self.policy.memory = {}
        self.engine = Engine.restore(data, self.groups, self.policy, reattach_us=self.reattach_us)
        return self.send(Restarted())

    # what should come of it

    @property
    def answers(self) -> list[Command]:
        """What the engine answered since the last `expect` or `skip`."""
        return [command for _, _, commands in self.log[self._seen :] for command in commands]

    def expect(self, *expected: Expected) -> Self:
        """Exactly these commands answered since the last `expect`, in this order; none at all when none is given."""
        loud = {each.kind if isinstance(each, Like) else type(each) for each in expected}
        answers = [command for command in self.answers if not isinstance(command, _QUIET) or type(command) in loud]
        fits = len(answers) == len(expected) and all(map(_fits, expected, answers))
        assert fits, _difference(expected, answers, self._story())
        return self.skip()

    def skip(self) -> Self:
        """Whatever was answered so far is not what this playbook is about."""
        self._seen = len(self.log)
        return self

    def _story(self) -> str:
        return "\n".join(f"  at {now}: {event}" for now, event, _ in self.log[self._seen :])


def _fits(expected: Expected, answer: Command) -> bool:
    return expected.matches(answer) if isinstance(expected, Like) else expected == answer


def _difference(expected: Iterable[Expected], answers: Iterable[Command], story: str) -> str:
    wanted = "\n".join(f"  {each}" for each in expected) or "  nothing"
    got = "\n".join(f"  {each}" for each in answers) or "  nothing"
    return f"after\n{story}\nexpected\n{wanted}\nbut the engine answered\n{got}"
