"""An arena counts what is charged to it, never more than its capacity, for every process that opens its file."""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import nullcontext
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsched.backends.arena import Arena, start_time
from tsched.errors import DeviceMemoryFull, Invalid


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
