"""Run every benchmark and print one JSON object; progress goes to stderr."""

from __future__ import annotations

import json
import sys

from benchmarks import channel, engine, region, simulator


def main() -> None:
    results: dict[str, object] = {}
    for name, bench in {
        "simulator_against_simpy": simulator.against_simpy,
        "decision_cost": engine.decisions,
        "hand_over_in_process": engine.hand_over,
        "scale_2000_jobs_500_groups": simulator.at_scale,
        "region_bandwidth": lambda: region.run("bandwidth"),
        "region_memory": lambda: region.run("memory"),
        "turn_across_processes": channel.turn,
        "hand_over_across_processes": channel.hand_over,
        "lora_packing": lambda: region.run("packing"),
    }.items():
        print(f"{name} ...", file=sys.stderr, flush=True)
        results[name] = bench()
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
