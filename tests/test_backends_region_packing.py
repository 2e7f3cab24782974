"""LoRA jobs take turns in an arena that holds a fraction of them; the benchmark's own code, on a smaller base."""

from __future__ import annotations

from typing import Any

from benchmarks.region import run


def test_eight_times_as_many_lora_jobs_take_turns_as_fit_at_once_and_the_system_sees_no_more_than_the_arena() -> None:
    seen: dict[str, Any] = run("packing", jobs=16, at_once=2, turns=2, steps=1, width=512, layers=4, rank=192)
    assert seen["fit_at_once"] == 2
    assert seen["take_turns"] == seen["jobs_that_progress"] == 16
    assert seen["state_mib_each"] >= 8
    assert seen["arena_peak_mib"] <= seen["arena_mib"]
    assert seen["switches"] >= 14
    assert seen["device_memory_peak_seen_by_the_system_mib"] <= seen["arena_mib"]
