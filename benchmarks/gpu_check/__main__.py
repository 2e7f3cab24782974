"""Check this machine's GPU: exit status 0 if every possible step passed, 1 if one failed, 2 where there is no GPU."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence

import click

from benchmarks.gpu_check.outcome import Outcome, Status, as_object, as_table, exit_status
from benchmarks.gpu_check.scale import Scale
from benchmarks.gpu_check.steps import STEPS, run_apart
from tsched.errors import MissingDriver, MissingExtra

NO_GPU = 2
BUDGET_S = 230.0


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
@click.option("--device", default="cuda:0", show_default=True, help="The device, as torch names it.")
@click.option("--step", "chosen", multiple=True, type=click.Choice(list(STEPS)), help="Only this; may be repeated.")
def main(as_json: bool, device: str, chosen: Sequence[str]) -> None:
    """Park real models and processes on a GPU, check their bits, and measure."""
    try:
        machine, scale = look(device)
    except (MissingDriver, MissingExtra, ImportError) as error:
        print(f"gpu-check: {error}", file=sys.stderr)
        sys.exit(NO_GPU)
    outcomes = list(run_all(scale, chosen or tuple(STEPS), BUDGET_S))
    print(json.dumps(as_object(machine, outcomes), indent=2) if as_json else as_table(machine, outcomes))
    sys.exit(exit_status(outcomes))


def look(device: str) -> tuple[dict[str, object], Scale]:
    """The machine, and a scale that fits it. Raises `MissingDriver` or `MissingExtra` where it cannot be checked."""
    from benchmarks.gpu_check.site import Site, host_bytes

    site = Site(device)
    return site.describe(), Scale(device=device).within(site.memory().free_bytes, host_bytes())


def run_all(scale: Scale, names: Sequence[str], budget_s: float) -> Iterator[Outcome]:
    """One after another, each within its own limit and what is left of the time."""
    end = time.monotonic() + budget_s
    for name in names:
        limit_s = min(STEPS[name].limit_s, end - time.monotonic())
        print(f"{name} ...", file=sys.stderr, flush=True)
        if limit_s > 0:
            yield run_apart(name, scale, limit_s)
        else:
            yield Outcome(name, Status.FAILED, f"not begun: the {budget_s:.0f} s of the whole check were over")


if __name__ == "__main__":
    main()
