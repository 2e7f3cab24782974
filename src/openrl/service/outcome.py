"""What came of a step: an answer to keep, or why there is none. Plain values."""

from __future__ import annotations

from msgspec import Struct

from openrl.queue import Failed
from openrl.service.answers import Answered, Done, Failure, Value, encode_value
from openrl.store import Answer, Write


class Outcome(Struct, frozen=True):
    """`publish` is recorded together with the answer, so that an effect and its answer happen once and together."""

    value: Value | None = None
    failed: Failed | None = None
    cost_us: int = 0
    publish: tuple[Write, ...] = ()

    def answer(self) -> Answered:
        if self.failed is not None:
            return Failure(self.failed.error, self.failed.category)
        assert self.value is not None
        return Done(self.value)


def record(request_id: str, outcome: Outcome, now_us: int) -> list[Write]:
    """The rows that keep this answer."""
    if outcome.failed is not None:
        error, category = outcome.failed.error, outcome.failed.category
        return [Answer(request_id, now_us, error=error, category=category)]
    assert outcome.value is not None
    name, body = encode_value(outcome.value)
    return [Answer(request_id, now_us, name, body), *outcome.publish]
