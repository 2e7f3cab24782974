"""An arena counts what is charged to it, never more than its capacity, for every process that opens its file."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsched.backends import arena as arena_module
from tsched.backends.arena import Arena, start_time
from tsched.errors import BackendError, DeviceMemoryFull, Invalid


@pytest.mark.parametrize("capacity", [0, -1])
def test_a_capacity_that_is_not_positive_is_refused(capacity: int) -> None:
    with pytest.raises(Invalid, match="capacity_bytes must be >= 1"):
        Arena(capacity)


def test_what_does_not_fit_is_refused_and_changes_nothing() -> None:
    arena = Arena(100)
    arena.charge("a", 60)
    with pytest.raises(DeviceMemoryFull, match=r"b: 41 bytes do not fit beside the 60 in use of 100"):
        arena.charge("b", 41)
    assert (arena.used_bytes, arena.peak_bytes, arena.held("a"), arena.held("b")) == (60, 60, 60, 0)
    arena.charge("b", 40)
    arena.refund("a", 60)
    assert (arena.used_bytes, arena.peak_bytes) == (40, 100)


def test_nobody_gives_back_more_than_they_hold() -> None:
    arena = Arena(100)
    arena.charge("a", 10)
    with pytest.raises(Invalid, match="a holds 10 bytes and cannot give back 11"):
        arena.refund("a", 11)
    with pytest.raises(Invalid, match="must be >= 0 bytes"):
        arena.charge("a", -1)
    assert arena.used_bytes == 10


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(-60, 60)), max_size=40))
def test_it_agrees_with_a_plain_sum(steps: list[tuple[str, int]]) -> None:
    arena, held, peak = Arena(100), dict.fromkeys("abc", 0), 0
    for owner, size in steps:
        fits = held[owner] + size >= 0 and sum(held.values()) + size <= 100
        if fits:
            held[owner] += size
        with nullcontext() if fits else pytest.raises(Invalid if size < 0 else DeviceMemoryFull):
            arena.refund(owner, -size) if size < 0 else arena.charge(owner, size)
        peak = max(peak, sum(held.values()))
        assert {owner: arena.held(owner) for owner in "abc"} == held
        assert (arena.used_bytes, arena.peak_bytes) == (sum(held.values()), peak)


def test_two_who_open_one_file_share_one_capacity(tmp_path: Path) -> None:
    first, second = Arena(100, tmp_path / "arena"), Arena(100, tmp_path / "arena")
    first.charge("a", 70)
    with pytest.raises(DeviceMemoryFull):
        second.charge("b", 31)
    assert second.used_bytes == 70
    second.close()
    first.close()


def test_another_capacity_or_another_file_is_refused(tmp_path: Path) -> None:
    Arena(100, tmp_path / "arena").close()
    with pytest.raises(Invalid, match="has a capacity of 100 bytes, not 99"):
        Arena(99, tmp_path / "arena")
    (tmp_path / "letter").write_text("dear all")
    with pytest.raises(Invalid, match="is not an arena's file"):
        Arena(100, tmp_path / "letter")


CHARGE_AND_WAIT = """
import sys
from tsched.backends.arena import Arena
arena = Arena(100, sys.argv[1])
arena.charge("a", 80)
print("charged", flush=True)
sys.stdin.read()
"""


def test_the_charges_of_a_process_that_was_killed_vanish(tmp_path: Path) -> None:
    arena = Arena(100, tmp_path / "arena")
    command = [sys.executable, "-c", CHARGE_AND_WAIT, str(tmp_path / "arena")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "charged\n"
        assert (arena.used_bytes, arena.held("a")) == (80, 0)
        with pytest.raises(DeviceMemoryFull):
            arena.charge("b", 21)
        process.kill()
        process.wait()
    arena.charge("b", 100)
    assert (arena.used_bytes, arena.peak_bytes) == (100, 100)


def test_threads_and_handles_together_never_pass_the_capacity(tmp_path: Path) -> None:
    arenas = [Arena(1000, tmp_path / "arena") for _ in range(4)]
    granted: list[int] = []

    def take(arena: Arena, owner: str) -> None:
        for _ in range(50):
            try:
                arena.charge(owner, 10)
            except DeviceMemoryFull:
                continue
            granted.append(10)

    threads = [threading.Thread(target=take, args=(arena, str(number))) for number, arena in enumerate(arenas)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(granted) == arenas[0].used_bytes == arenas[0].peak_bytes == 1000


def test_a_pid_that_nobody_has_never_began() -> None:
    assert start_time(2**22 + 1) == 0


class Killed(BaseException):
    """The process ends here."""


class Mortal:
    """An arena's table that is written so many words of, and not one more."""

    def __init__(self, table: memoryview[int], words: int) -> None:
        self._table, self._words = table, words

    def __getitem__(self, at: Any) -> Any:
        return self._table[at]

    def __setitem__(self, at: int, word: int) -> None:
        if not self._words:
            raise Killed
        self._words -= 1
        self._table[at] = word


@pytest.mark.parametrize("owners", [1, 255])
@pytest.mark.parametrize("words", range(7))
def test_a_process_that_dies_between_any_two_words_leaves_a_whole_charge_or_none(
    tmp_path: Path, owners: int, words: int
) -> None:
    arena, mortal = (Arena(10_000, tmp_path / "arena") for _ in range(2))
    for number in range(owners):
        arena.charge(str(number), 10)
    mortal._table = Mortal(mortal._table, words)  # type: ignore[assignment]
    survived = False
    try:
        mortal.charge("new", 10)
        survived = True
    except Killed:
        pass
    assert arena.held("new") in ({10} if survived else {0, 10})
    assert arena.used_bytes == 10 * owners + arena.held("new")
    arena.charge("next", 20)
    assert (arena.held("next"), arena.held("0")) == (20, 10)


def in_a_fork(act: Callable[[], object]) -> int:
    """A copy of this process that does it, and ends with 0 if it did."""
    pid = os.fork()
    if not pid:
        try:
            act()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return pid


def ended_well(pid: int) -> bool:
    return os.waitpid(pid, 0)[1] == 0


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_what_processes_that_are_killed_anywhere_had_is_free_again(tmp_path: Path) -> None:
    arena = Arena(1000, tmp_path / "arena")
    arena.charge("kept", 400)

    def churn() -> None:
        for number in range(10**9):
            arena.charge(str(number % 7), 10 + number % 40)
            arena.refund(str(number % 7), arena.held(str(number % 7)) // 2)
            if number % 10 == 9:
                for owner in range(7):
                    arena.refund(str(owner), arena.held(str(owner)))

    for delay in (0.02, 0.031, 0.047, 0.06):
        pid = in_a_fork(churn)
        time.sleep(delay)
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        arena.charge("rest", 600)
        assert (arena.used_bytes, arena.held("kept")) == (1000, 400)
        arena.refund("rest", 600)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_process_has_a_lock_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arena_module, "_PATIENCE_S", 0.1)
    arena = Arena(100, tmp_path / "arena")

    def charge_what_is_locked() -> None:
        with pytest.raises(BackendError, match=r"locked for 0\.1 s"):
            arena.charge("child", 10)

    with arena._lock():
        assert ended_well(in_a_fork(charge_what_is_locked))
    assert ended_well(in_a_fork(lambda: arena.charge("child", 10)))
    assert arena.used_bytes == 0


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_without_a_path_a_forked_process_counts_for_itself() -> None:
    arena = Arena(100)
    assert ended_well(in_a_fork(lambda: arena.charge("child", 60)))
    arena.charge("parent", 60)
    assert arena.peak_bytes == 60


def test_a_holder_of_the_lock_that_is_frozen_is_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arena_module, "_PATIENCE_S", 0.05)
    arena = Arena(100, tmp_path / "arena")
    with (tmp_path / "arena").open("rb") as frozen:
        fcntl.flock(frozen, fcntl.LOCK_EX)
        with pytest.raises(BackendError, match="is it frozen"):
            arena.charge("a", 1)
    arena.charge("a", 1)


def test_a_file_that_was_cut_short_or_deleted_is_an_error_and_no_crash(tmp_path: Path) -> None:
    arena = Arena(100, tmp_path / "arena")
    os.truncate(tmp_path / "arena", 8)
    with pytest.raises(BackendError, match="cut short while it was in use"):
        arena.charge("a", 1)
    other = Arena(100, tmp_path / "other")
    (tmp_path / "other").unlink()
    with pytest.raises(BackendError, match="deleted while it was in use"):
        other.charge("a", 1)


def test_a_file_that_was_not_finished_is_finished_by_the_next(tmp_path: Path) -> None:
    (tmp_path / "arena").write_bytes(bytes(arena_module._FILE_BYTES))
    Arena(100, tmp_path / "arena").charge("a", 60)
    assert Arena(100, tmp_path / "arena").used_bytes == 60


def test_a_path_that_cannot_be_a_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="cannot be opened: Is a directory"):
        Arena(100, tmp_path)


def test_a_table_that_is_full_refuses_and_goes_on_when_a_line_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arena_module, "_LINES", 3)
    arena = Arena(100)
    for owner in "abc":
        arena.charge(owner, 10)
    with pytest.raises(BackendError, match="3 owners have memory, and d finds no line"):
        arena.charge("d", 10)
    assert arena.used_bytes == 30
    arena.refund("b", 10)
    arena.charge("d", 10)
    assert arena.held("d") == 10
