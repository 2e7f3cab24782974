"""LoRA jobs take turns on a device that holds a fraction of them; the benchmark's own code, with fewer jobs."""

from __future__ import annotations

from typing import Any

from benchmarks.region import run


def test_eight_times_as_many_lora_jobs_take_turns_as_the_kernel_lets_stay_on_the_device() -> None:
    seen: dict[str, Any] = run("packing", jobs=16, at_once=2, turns=2, steps=1)
    assert seen["fit_at_once"] == 2
    assert "allocate memory" in seen["next_one_was_told"]
    assert seen["take_turns"] == seen["jobs_that_progress"] == 16
    assert min(seen["adapter_mib_each"], seen["optimizer_mib_each"]) >= 8
    assert seen["arena_peak_mib"] <= seen["arena_mib"]
    assert seen["allowance_mib"] < seen["state_mib_each"] / 2
    assert seen["cap_still_in_force"]
    assert seen["switches"] >= 14
