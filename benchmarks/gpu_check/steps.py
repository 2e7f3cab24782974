"""The steps by name, and running one in a process group of its own that ends with it.

python -m benchmarks.gpu_check.steps NAME SCALE
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType

from benchmarks.gpu_check.outcome import Figures, Outcome, Status, status_of
from benchmarks.gpu_check.scale import Scale

ROOT = Path(__file__).resolve().parents[2]
_SAID_LAST = 300  # characters of what a step that crashed has said


@dataclass(frozen=True, slots=True)
class Step:
    """Where its function is, and how long it may take."""

    module: str
    function: str
    limit_s: float


STEPS: Mapping[str, Step] = MappingProxyType(
    {
        "nvml_probes": Step("process_steps", "probe", 40),
        "region_model": Step("region_steps", "park_model", 60),
        "region_without_room": Step("region_steps", "restore_without_room", 45),
        "region_200_switches": Step("region_steps", "switch_adapters", 45),
        "turns_of_regions": Step("turn_steps", "turns_of_regions", 80),
        "process_park": Step("process_steps", "park_process", 60),
        "turns_of_processes": Step("turn_steps", "turns_of_processes", 90),
    }
)


def run_apart(name: str, scale: Scale, limit_s: float) -> Outcome:
    """Run one step in a new process; what it left running is killed."""
    begin = time.perf_counter()
    command = [sys.executable, "-m", "benchmarks.gpu_check.steps", name, json.dumps(asdict(scale))]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    late = False
    try:
        said, complained = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        late = True
        os.killpg(process.pid, signal.SIGKILL)
        said, complained = process.communicate()
    seconds = time.perf_counter() - begin
    if late:
        return Outcome(name, Status.FAILED, f"it did not end within {limit_s:.3g} s", seconds)
    return _read(name, said, complained, process.returncode, seconds)


def _read(name: str, said: str, complained: str, returncode: int, seconds: float) -> Outcome:
    if returncode:
        return Outcome(name, Status.FAILED, f"it ended with {returncode}: {complained[-_SAID_LAST:].strip()}", seconds)
    answer = json.loads(said.splitlines()[-1])
    return Outcome(name, Status(answer["status"]), answer["reason"], seconds, answer["figures"])


def carry_out(name: str, scale: Scale) -> dict[str, object]:
    """In this process: what became of it, and its figures."""
    from importlib import import_module

    from benchmarks.gpu_check.site import Site

    step = STEPS[name]
    try:
        function: Callable[[Site, Scale], Figures] = getattr(
            import_module(f"benchmarks.gpu_check.{step.module}"), step.function
        )
        return {"status": Status.PASSED, "reason": "", "figures": function(Site(scale.device), scale)}
    except Exception as error:
        first = _first(error)
        return {"status": status_of(first), "reason": f"{type(first).__name__}: {first}", "figures": {}}


def _first(error: BaseException) -> BaseException:
    """Of a group, the first that is none itself."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    print(json.dumps(carry_out(sys.argv[1], Scale(**json.loads(sys.argv[2])))), file=answers, flush=True)


if __name__ == "__main__":
    main()
