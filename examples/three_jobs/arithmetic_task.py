"""Addition in columns: the reply shows its working, and only the number at its end is judged.

The teacher is sloppy: he often forgets a carry or miscounts. Imitating him gives the form and part of the skill; the
rest has to come from the reward.
"""

from __future__ import annotations

import re
from random import Random

from examples.three_jobs.task import Demonstration, Question
from examples.three_jobs.tokenizer import Tokenizer


class ArithmeticTask:
    prompt_tokens = 5
    reply_tokens = 21

    def __init__(self, seed: int, *, mistakes: float = 0.5) -> None:
        self.tokenizer = Tokenizer("0123456789+=,>")
        self._mistakes = mistakes

    def question(self, rng: Random) -> Question:
        left, right = rng.randrange(10, 100), rng.randrange(1, 6)
        return Question(f"{left}+{right}=", str(left + right))

    def demonstration(self, rng: Random) -> Demonstration:
        prompt = self.question(rng).prompt
        slip_at = rng.randrange(2) if rng.random() < self._mistakes else None
        left, right = prompt[:-1].split("+")
        return Demonstration(prompt, worked(left, right, rng, slip_at))

    def reward(self, question: Question, reply: str) -> float:
        last = re.fullmatch(r"[^>]*>([0-9]{1,6})", reply)
        return 1.0 if last and last[1] == question.answer else 0.0


def worked(left: str, right: str, rng: Random, slip_at: int | None = None) -> str:
    """The columns from the right, such as `7+8=15,4+0+1=5>55`; one column may be off by one."""
    carry, columns, digits = 0, [], ""
    for place, (a, b) in enumerate(zip(reversed(left), reversed(right.zfill(len(left))), strict=True)):
        total = int(a) + int(b) + carry
        if place == slip_at:
            total += rng.choice((-1, 1)) if total else 1
        columns.append(f"{a}+{b}" + ("+1" if carry else "") + f"={total}")
        carry, digits = total // 10, f"{total % 10}{digits}"
    return ",".join(columns) + ">" + ("1" if carry else "") + digits
