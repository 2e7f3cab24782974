"""A small SQLite database about staff, and the one way in which generated queries may read it.

A query that comes from a model is bounded in every direction: it can only read, it is stopped after a number of
virtual-machine steps (counted, so that the verdict does not depend on the machine's speed), and neither a value nor
the number of rows may grow beyond a limit.
"""

from __future__ import annotations

import sqlite3
from random import Random

CITIES = ("oslo", "rome", "lima", "kyiv", "cairo", "delhi")
TEAMS = ("sales", "legal", "design", "support")
MAX_STEPS = 20_000
STEPS_PER_CHECK = 500
MAX_ROWS = 200
MAX_VALUE_BYTES = 10_000
ALLOWED = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE)

Rows = list[tuple[object, ...]]


class StaffDatabase:
    def __init__(self, rng: Random, people: int = 40) -> None:
        self._connection = sqlite3.connect(":memory:", check_same_thread=False)
        self._connection.execute("CREATE TABLE staff (name TEXT, city TEXT, team TEXT, age INTEGER, pay INTEGER)")
        self._connection.executemany("INSERT INTO staff VALUES (?, ?, ?, ?, ?)", staff(rng, people))
        self._connection.commit()
        self._connection.set_authorizer(read_only)
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)

    def rows(self, query: str) -> Rows | None:
        """The rows in a fixed order; None if the text is no query, writes, or goes on for too long."""
        self._connection.set_progress_handler(StepBudget(), STEPS_PER_CHECK)
        try:
            rows: Rows = self._connection.execute(query).fetchmany(MAX_ROWS + 1)
        except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError):
            return None
        finally:
            self._connection.set_progress_handler(None, 0)
        return None if len(rows) > MAX_ROWS else sorted(rows, key=repr)


class StepBudget:
    """SQLite asks it again and again whether to stop."""

    def __init__(self) -> None:
        self.left = MAX_STEPS

    def __call__(self) -> bool:
        self.left -= STEPS_PER_CHECK
        return self.left < 0


def read_only(action: int, *_: str | None) -> int:
    return sqlite3.SQLITE_OK if action in ALLOWED else sqlite3.SQLITE_DENY


def staff(rng: Random, people: int) -> Rows:
    """Ages and pays are all different, so that `the oldest` is one person."""
    ages = rng.sample(range(20, 65), people)
    pays = rng.sample(range(20, 100), people)
    return [(f"p{n}", rng.choice(CITIES), rng.choice(TEAMS), ages[n], pays[n]) for n in range(people)]
