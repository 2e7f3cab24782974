"""Questions about staff, answered by SQL: the reward is 1 if the query runs and returns the right rows.

The teacher is sloppy: in part of his demonstrations he asks for the wrong measure, turns a comparison round or
forgets a condition. What tells a right query from a wrong one is the database alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from examples.three_jobs.sql_database import CITIES, TEAMS, StaffDatabase
from examples.three_jobs.task import Demonstration, Question
from examples.three_jobs.tokenizer import Tokenizer

MEASURES = {
    "how many": ("count(*)", ""),
    "mean age": ("avg(age)", ""),
    "mean pay": ("avg(pay)", ""),
    "total pay": ("sum(pay)", ""),
    "names": ("name", ""),
    "oldest": ("name", " ORDER BY age DESC LIMIT 1"),
    "youngest": ("name", " ORDER BY age ASC LIMIT 1"),
    "best paid": ("name", " ORDER BY pay DESC LIMIT 1"),
}
BOUNDS = {"over": ">", "under": "<"}
WORDS = (
    *MEASURES,
    *BOUNDS,
    *CITIES,
    *TEAMS,
    *(" in ", " of ", " and "),
    *("SELECT ", " FROM staff", " WHERE ", " AND ", "count(*)", "avg(", "sum(", "name", "city", "team", "age", "pay"),
    *(" ORDER BY ", " DESC", " ASC", " LIMIT 1", "='"),
)


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked: a measure, and up to three conditions; an empty string is no condition."""

    measure: str
    city: str
    team: str
    bound: str
    age: int

    def question(self) -> str:
        city = f" in {self.city}" if self.city else ""
        team = f" of {self.team}" if self.team else ""
        bound = f" {self.bound} {self.age}" if self.bound else ""
        return f"{self.measure}{city}{team}{bound}?"

    def query(self) -> str:
        column, order = MEASURES[self.measure]
        conditions = [f"{name}='{value}'" for name, value in (("city", self.city), ("team", self.team)) if value]
        conditions += [f"age{BOUNDS[self.bound]}{self.age}"] if self.bound else []
        where = " WHERE " + " AND ".join(conditions) if conditions else ""
        return f"SELECT {column} FROM staff{where}{order}"


class SqlTask:
    prompt_tokens = 12
    reply_tokens = 28

    def __init__(self, seed: int, *, mistakes: float = 0.6) -> None:
        self.tokenizer = Tokenizer("abcdefghijklmnopqrstuvwxyzp0123456789 ?'<>=()*,", WORDS)
        self.database = StaffDatabase(Random(f"{seed}/database"))
        self._mistakes = mistakes

    def question(self, rng: Random) -> Question:
        request = draw(rng)
        return Question(request.question(), request.query())

    def demonstration(self, rng: Random) -> Demonstration:
        request = draw(rng)
        shown = mistaken(request, rng) if rng.random() < self._mistakes else request
        return Demonstration(request.question(), shown.query())

    def reward(self, question: Question, reply: str) -> float:
        rows = self.database.rows(reply)
        return 1.0 if rows is not None and rows == self.database.rows(question.answer) else 0.0


def draw(rng: Random) -> Request:
    measure, shape = rng.choice(tuple(MEASURES)), rng.randrange(1, 8)
    city = rng.choice(CITIES) if shape & 1 else ""
    team = rng.choice(TEAMS) if shape & 2 else ""
    bound = rng.choice(tuple(BOUNDS)) if shape & 4 else ""
    return Request(measure, city, team, bound, rng.randrange(25, 60, 5))


def mistaken(request: Request, rng: Random) -> Request:
    """The request as somebody understands it who does not listen well."""
    match rng.randrange(3):
        case 0 if request.bound:
            return replace(request, bound="under" if request.bound == "over" else "over")
        case 1 if request.city and request.team:
            return replace(request, city="") if rng.random() < 0.5 else replace(request, team="")
    return replace(request, measure=rng.choice([name for name in MEASURES if name != request.measure]))
