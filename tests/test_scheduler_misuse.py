"""What a caller says wrongly is that caller's error alone: nothing is logged, and nobody else notices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.virtual import run
from tsched import Group, Job, Scheduler
from tsched.errors import Invalid, JournalError, SchedulerClosed, TschedError, UnknownGroup
from tsched.journal import JsonlJournal, SqliteJournal

ODD: list[dict[str, Any]] = [
    {"phase": 3},
    {"phase": object()},
    {"phase": "caf\udce9"},
    {"client": 5, "request": 1},
    {"client": "c", "request": -1},
    {"request": 1},
    {"within": "x"},
    {"groups": [1]},
    {"groups": []},
    {"groups": [[]]},
    {"job": None},
    {"estimate_s": -1.0},
    {"estimate_s": float("nan")},
    {"ttl_s": float("nan")},
]


def test_a_wrong_argument_is_refused_to_its_caller_and_the_log_stays_readable(tmp_path: Path) -> None:
    path = tmp_path / "log.db"

    async def main() -> None:
        async with Scheduler([Group("g")], journal=SqliteJournal(path)) as sched:
            await sched.add_job(Job("a"))
            for odd in ODD:
                with pytest.raises((TschedError, TypeError)):
                    await sched.acquire(**{"job": "a", "groups": "g", **odd})
            for job in (Job("c", state_bytes={"g": 1.5}), Job("d", owner=3)):  # type: ignore[dict-item, arg-type]
                with pytest.raises(Invalid):
                    await sched.add_job(job)
            async with sched.hold("a", "g"):
                pass
        async with Scheduler([Group("g")], journal=SqliteJournal(path)) as sched:
            assert list(sched.jobs) == ["a"]

    run("asyncio", main)


def test_a_job_that_declares_a_size_on_a_group_that_is_not_there_is_refused() -> None:
    async def main() -> None:
        async with Scheduler([Group("trainers")]) as sched:
            with pytest.raises(UnknownGroup, match="'trainer'"):
                await sched.add_job(Job("a", state_bytes={"trainer": 1}))

    run("asyncio", main)


def test_the_name_of_a_request_is_not_taken_for_another_job() -> None:
    async def main() -> None:
        async with Scheduler([Group("g"), Group("h")]) as sched:
            await sched.add_job(Job("a"))
            await sched.add_job(Job("b"))
            await sched.acquire("a", "g", client="c", request=1)
            with pytest.raises(Invalid, match="take a new number"):
                await sched.acquire("b", "h", client="c", request=1)

    run("asyncio", main)


def test_a_misspelt_on_lost_is_refused() -> None:
    async def main() -> None:
        async with Scheduler([Group("g")]) as sched:
            await sched.add_job(Job("a"))
            with pytest.raises(Invalid, match="on_lost"):
                async with sched.hold("a", "g", on_lost="bogus"):  # type: ignore[arg-type]
                    raise AssertionError("the body must not run")

    run("asyncio", main)


@pytest.mark.parametrize("kind", ["jsonl", "sqlite"])
def test_a_second_scheduler_on_one_log_ends_the_first_before_it_grants_again(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "log"

    def journal() -> JsonlJournal | SqliteJournal:
        return JsonlJournal(path) if kind == "jsonl" else SqliteJournal(path, retain_records=0)

    async def both() -> None:
        async with Scheduler([Group("g")], journal=journal()) as first:
            await first.add_job(Job("a"))
            async with Scheduler([Group("g")], policy="fair_share", journal=journal(), snapshot_every=5) as second:
                for number in range(20):
                    await second.add_job(Job(f"j{number}"))
                await first.acquire("a", "g")

    with pytest.raises(JournalError, match="only one scheduler may"):
        run("asyncio", both)


def test_a_file_that_is_no_log_is_left_as_it_is(tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("buy milk")

    async def main() -> None:
        async with Scheduler([Group("g")], journal=JsonlJournal(notes)):
            pass

    with pytest.warns(UserWarning, match="cut short"), pytest.raises(Invalid, match="is no decision log"):
        run("asyncio", main)
    assert notes.read_text() == "buy milk"


def test_a_scheduler_that_was_not_entered_says_so() -> None:
    async def main() -> None:
        sched = Scheduler([Group("g")])
        with pytest.raises(SchedulerClosed, match="enter it with `async with`"):
            await sched.add_job(Job("a"))
        with pytest.raises(SchedulerClosed, match="enter it with `async with`"):
            await sched.acquire("a", "g")

    run("asyncio", main)
