"""Host buffers are used again, kept within a limit, and really go back to the system."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tsched.backends.region import HostPool, Regions, RegionStore
from tsched.backends.region.host import Slice
from tsched.errors import HostMemoryFull, Invalid

MIB = 1 << 20


def held_mib(kind: str) -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(kind + ":"):
            return int(line.split()[1]) / 1024
    raise AssertionError(f"the system does not say {kind}")


def test_a_buffer_that_was_given_back_is_used_again() -> None:
    pool = HostPool()
    first = pool.take([100, 200])
    pool.give(first)
    assert pool.take([200, 90])[0].buffer is first[0].buffer
    assert pool.mapped_bytes == 4096


def test_a_buffer_is_idle_only_with_the_last_of_its_pieces() -> None:
    pool = HostPool()
    first = pool.take([100, 200])
    pool.give(first[:1])
    assert pool.take([100])[0].buffer is not first[0].buffer
    assert pool.used_bytes == 300


def test_pieces_do_not_overlap_and_are_aligned() -> None:
    pieces = HostPool().take([1, 64, 65, 3])
    assert [piece.offset for piece in pieces] == [0, 64, 128, 256]
    assert pieces[0].address % 4096 == 0


def test_shrinking_gives_memory_back_to_the_system() -> None:
    pool, before = HostPool(), held_mib("RssShmem")
    (piece,) = pool.take([64 * MIB])
    piece.buffer.mapping[:] = bytes(64 * MIB)
    pool.give([piece])
    assert held_mib("RssShmem") - before > 60
    assert pool.shrink() == 64 * MIB
    assert held_mib("RssShmem") - before < 4
    assert pool.mapped_bytes == 0


def test_more_than_the_limit_is_refused_with_nothing_taken() -> None:
    pool = HostPool(300)
    pool.take([200])
    with pytest.raises(HostMemoryFull, match="101 bytes would be parked beside 200, and host memory may hold 300"):
        pool.take([101])
    assert pool.used_bytes == 200
    pool.take([100])
    with pytest.raises(Invalid):
        HostPool(-1)


def test_within_a_limit_a_buffer_much_larger_than_asked_for_is_not_used_again() -> None:
    """Its unused part would be memory beyond the limit."""
    pool = HostPool(10 * MIB)
    pool.give(pool.take([8 * MIB]))
    small = pool.take([4 * MIB])
    pool.take([6 * MIB])
    assert small[0].buffer.size_bytes == 4 * MIB
    assert pool.mapped_bytes == 10 * MIB


def test_a_system_without_so_much_memory_refuses_by_the_same_error() -> None:
    with pytest.raises(HostMemoryFull, match="the system gives no"):
        HostPool().take([1 << 62])


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 50_000)), max_size=60))
def test_the_pool_never_maps_more_than_was_in_use_at_one_time(steps: list[tuple[bool, int]]) -> None:
    pool = HostPool()
    held: list[list[Slice]] = []
    most = 0
    for take, size in steps:
        if take or not held:
            held.append(pool.take([size]))
        else:
            pool.give(held.pop(size % len(held)))
        most = max(most, sum(piece[0].buffer.size_bytes for piece in held))
        assert pool.mapped_bytes <= most
        assert pool.used_bytes == sum(piece[0].size_bytes for piece in held)
    buffers = [piece[0].buffer for piece in held]
    assert len(set(map(id, buffers))) == len(buffers)


def test_a_hundred_cycles_grow_the_process_by_no_more_than_the_first() -> None:
    torch.set_num_threads(1)
    parameter = torch.nn.Parameter(torch.ones(MIB))
    small = [torch.ones(5_000 + number) for number in range(100)]
    pool = HostPool()
    store = RegionStore(Regions().add("x", lambda: [parameter, *small]), pool=pool)
    held = []
    for number in range(100):
        parameter.grad = torch.ones(MIB) if number % 3 else None
        store.trim()
        store.park()
        store.restore()
        parameter.grad = None
        held.append((held_mib("RssAnon"), held_mib("RssShmem"), pool.mapped_bytes))
    assert max(anonymous for anonymous, _, _ in held[3:]) <= held[2][0] + 2
    assert max(shared for _, shared, _ in held[3:]) <= held[2][1] + 2
    assert held[-1][2] == held[2][2]
