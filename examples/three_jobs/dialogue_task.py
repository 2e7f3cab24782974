"""Bookings by dialogue: the assistant's reply must repeat every slot, with corrections taken into account.

The score is exact in form: a reply of another shape than asked for counts nothing, one of the right shape counts the
share of its slots that are right.
"""

from __future__ import annotations

import re
from random import Random

from examples.three_jobs.task import Demonstration, Question
from examples.three_jobs.tokenizer import Tokenizer

SERVICES = ("table", "room", "taxi", "boat", "desk", "hall")
CITIES = ("oslo", "rome", "lima", "kyiv", "cairo", "delhi", "quito", "tunis")
DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
OPENINGS = ("hello, ", "hi, ", "good day, ", "")
WISHES = ("i need a ", "please book a ", "can i have a ")
CORRECTIONS = ("sorry, make it ", "no, better ")
WORDS = (
    *SERVICES, *CITIES, *DAYS, *OPENINGS[:3], *WISHES, *CORRECTIONS,
    *("user: ", "assistant: ", " in ", " on ", " for ", " people", "which day? ", "how many? ", "booked: "),
)  # fmt: skip
REPLY = re.compile(r"booked: ([a-z]+) in ([a-z]+) on ([a-z]+) for ([0-9]+) people")


class DialogueTask:
    prompt_tokens = 40
    reply_tokens = 14

    def __init__(self, seed: int) -> None:
        self.tokenizer = Tokenizer("abcdefghijklmnopqrstuvwxyz0123456789 :,?.\n", WORDS)

    def question(self, rng: Random) -> Question:
        service, city, day = rng.choice(SERVICES), rng.choice(CITIES), rng.choice(DAYS)
        people = rng.randrange(1, 60)
        lines = [f"user: {rng.choice(OPENINGS)}{rng.choice(WISHES)}{service} in {city}"]
        lines += [f"assistant: which day? \nuser: {day}", f"assistant: how many? \nuser: {people}"]
        if rng.random() < 0.5:
            day, people, correction = corrected(day, people, rng)
            lines[-1] += f"\nuser: {correction}"
        prompt = "\n".join([*lines, "assistant: "])
        return Question(prompt, f"booked: {service} in {city} on {day} for {people} people")

    def demonstration(self, rng: Random) -> Demonstration:
        question = self.question(rng)
        return Demonstration(question.prompt, question.answer)

    def reward(self, question: Question, reply: str) -> float:
        got, wanted = slots(reply), slots(question.answer)
        right = sum(a == b for a, b in zip(got, wanted, strict=False))
        return right / len(wanted)


def slots(reply: str) -> tuple[str, ...]:
    """Service, city, day and people; nothing if the reply has another form."""
    form = REPLY.fullmatch(reply)
    return form.groups() if form else ()


def corrected(day: str, people: int, rng: Random) -> tuple[str, int, str]:
    """The user changes his mind about one slot: the new slots, and what he says."""
    opening = rng.choice(CORRECTIONS)
    if rng.random() < 0.5:
        day = rng.choice(DAYS)
        return day, people, f"{opening}{day}"
    people = rng.randrange(1, 60)
    return day, people, f"{opening}{people} people"
