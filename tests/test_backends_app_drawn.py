"""Whatever goes wrong in whatever order: weights are never lost, nothing is woken twice, and memory is told truly."""

from __future__ import annotations

from contextlib import closing, suppress
from typing import Any

import anyio
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine_server import SIZE, Bench, Reply
from tsched.backends import Order
from tsched.errors import BackendError

ROUTES = {
    "vllm": ("/sleep", "/wake_up", "/collective_rpc", "/reset_prefix_cache", "/is_sleeping"),
    "sglang": (
        "/pause_generation",
        "/release_memory_occupation",
        "/resume_memory_occupation",
        "/update_weights_from_disk",
        "/flush_cache",
        "/continue_generation",
        "/server_info",
    ),
}


@st.composite
def lives(draw: st.DrawFn) -> tuple[str, str, list[tuple[str, Any]]]:
    """A dialect, a mode, and moves, each with what goes wrong in it: (replica, route, lost answer or none)."""
    dialect = draw(st.sampled_from(sorted(ROUTES)))
    fault = st.tuples(st.integers(0, 1), st.sampled_from(ROUTES[dialect]), st.booleans())
    move = st.tuples(st.sampled_from(["park", "restore"]), st.none() | fault)
    return dialect, draw(st.sampled_from(["offload", "discard"])), draw(st.lists(move, max_size=8))


@settings(max_examples=60)
@given(lives())
def test_no_fault_of_an_engine_loses_its_weights(life: tuple[str, str, list[tuple[str, Any]]]) -> None:
    anyio.run(_live, *life)


async def _live(dialect: str, mode: str, moves: list[tuple[str, Any]]) -> None:
    with closing(Bench(dialect=dialect, mode=mode)) as rig:
        engines = rig.start(replicas=2)
        engines[1].disk = engines[0].disk  # replicas of one model
        engines[1].weights = weights = engines[0].read()
        for op, (kind, fault) in enumerate(moves):
            for engine in engines:
                engine.answers.clear()
            if fault is not None:
                replica, route, lost = fault
                engines[replica].answers[route] = Reply(drop=True, after=lost, times=1)
            order = Order(op, "g", "0", "a", 1, SIZE)
            with suppress(BackendError):
                await (rig.park(order) if kind == "park" else rig.restore(order))
            seen, held = await rig.look(), sum(engine.held_bytes() for engine in engines)
            assert seen.resident_bytes == held
            assert seen.parked_bytes or seen.resident_bytes
            assert not any(engine.crashed for engine in engines)
        for engine in engines:
            engine.answers.clear()
        await rig.restore(Order(len(moves), "g", "0", "a", 1, SIZE))
        assert [engine.read() for engine in engines] == [weights, weights]
        assert not any(engine.copies for engine in engines)
