"""What a job practises: questions, how a teacher would answer them, and how a reply is judged.

A task draws everything from the `random.Random` that it is handed; it holds no state that changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Protocol

from examples.three_jobs.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Question:
    """A prompt, and the answer that a reply is held against."""

    prompt: str
    answer: str


@dataclass(frozen=True, slots=True)
class Demonstration:
    """A prompt and a teacher's reply, right or wrong."""

    prompt: str
    reply: str


class Task(Protocol):
    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def prompt_tokens(self) -> int:
        """No prompt is longer."""

    @property
    def reply_tokens(self) -> int:
        """No demonstrated reply is longer, its end included."""

    def question(self, rng: Random) -> Question: ...

    def demonstration(self, rng: Random) -> Demonstration: ...

    def reward(self, question: Question, reply: str) -> float:
        """Between 0 (useless) and 1 (right)."""
