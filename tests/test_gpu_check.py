"""The GPU check without a GPU: its steps on the CPU, what it notices, what it says, and its exit status."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.gpu_check import __main__ as command
from benchmarks.gpu_check import device_bytes, process_steps, region_steps, steps, turn_steps
from benchmarks.gpu_check.child import Child
from benchmarks.gpu_check.device_bytes import checksum
from benchmarks.gpu_check.outcome import (
    Failed,
    Impossible,
    Outcome,
    Status,
    as_object,
    as_table,
    exit_status,
    status_of,
)
from benchmarks.gpu_check.scale import GIB, MIB, Scale
from benchmarks.gpu_check.site import Site
from benchmarks.gpu_check.trainee import Trainee
from benchmarks.gpu_check.turn_steps import Account
from tsched.backends.region.copiers import CpuCopier
from tsched.backends.region.host import Slice
from tsched.errors import BackendError, MissingDriver, MissingExtra

ROOT = Path(__file__).resolve().parent.parent
SMALL = Scale(
    device="cpu", layers=2, hidden=256, vocabulary=512, rounds=1, switches=20, adapter_rank=8, turns=2, spare_bytes=MIB
)
without_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")


@pytest.fixture
def site() -> Site:
    return Site("cpu")


# -------------------------------------------------------------------------------- checksums and sizes


@given(st.binary(min_size=1, max_size=300), st.integers(min_value=0))
def test_a_checksum_changes_with_every_bit(content: bytes, bit: int) -> None:
    flipped = bytearray(content)
    flipped[bit // 8 % len(content)] ^= 1 << bit % 8
    assert checksum([_tensor(content)]) == checksum([_tensor(content)]) != checksum([_tensor(flipped)])


@given(st.binary(min_size=1, max_size=300))
def test_a_checksum_is_the_same_however_large_the_pieces_are(content: bytes) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device_bytes, "_CHUNK_BYTES", 64)
        in_pieces = checksum([_tensor(content)])
    assert in_pieces == checksum([_tensor(content)])


def test_a_checksum_tells_which_tensor_holds_what() -> None:
    one, other = torch.ones(3, dtype=torch.bfloat16), torch.tensor(2.0)
    assert checksum([one, other]) != checksum([other, one])


def test_sizes_are_those_of_the_real_model() -> None:
    trainee = Trainee(SMALL)
    trainee.step()
    size = sum(tensor.nbytes for tensor in trainee.tensors())
    assert sum(each.numel() for each in trainee.model.parameters()) == SMALL.parameters
    assert size == pytest.approx(SMALL.state_bytes, rel=0.001)
    assert 1.0e9 < Scale().parameters < 1.1e9


def test_a_small_device_gets_a_smaller_model_and_never_less_than_one_layer() -> None:
    assert Scale().within(140 * GIB, 128 * GIB) == Scale()
    smaller = Scale().within(8 * GIB, 128 * GIB)
    assert smaller.layers < Scale().layers
    assert smaller.state_bytes <= 4 * GIB < smaller.with_layers(smaller.layers + 1).state_bytes
    assert Scale().within(140 * GIB, 10 * GIB).state_bytes <= 2 * GIB
    assert Scale().within(1, 1).layers == 1


# -------------------------------------------------------------------------------- steps in this process


def test_a_model_goes_and_comes_back_and_its_memory_is_seen_to_go(site: Site) -> None:
    figures = region_steps.park_model(site, SMALL)
    assert figures["bits"] == "identical"
    assert isinstance(figures["fallen_over_state"], float)
    assert figures["fallen_over_state"] >= region_steps.FALL


def test_a_restore_that_changes_a_bit_is_noticed(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    copy_in = CpuCopier.copy_in

    def corrupt(self: CpuCopier, storage: torch.UntypedStorage, source: Slice) -> None:
        copy_in(self, storage, source)
        storage[storage.nbytes() // 2] ^= 1

    monkeypatch.setattr(CpuCopier, "copy_in", corrupt)
    with pytest.raises(Failed, match="differs from what was parked"):
        region_steps.park_model(site, SMALL)


def test_memory_that_does_not_fall_is_noticed(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "held", lambda: GIB)
    with pytest.raises(Failed, match="the memory in use fell by 0"):
        region_steps.park_model(site, SMALL)


def test_a_restore_without_room_leaves_nothing_and_works_later(site: Site) -> None:
    figures = region_steps.restore_without_room(site, SMALL)
    assert "do not fit" in str(figures["refused_with"])
    assert figures["bits"] == "identical"


def test_adapters_switch_with_the_same_bits_and_without_growth(site: Site) -> None:
    figures = region_steps.switch_adapters(site, SMALL)
    assert figures["host_after_20_over_2"] == pytest.approx(1, abs=region_steps.GROWTH)


def test_growth_is_noticed(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = iter(range(1, 1000))
    monkeypatch.setattr(site, "held", lambda: next(calls) * MIB)
    with pytest.raises(Failed, match="after 20 switches"):
        region_steps.switch_adapters(site, SMALL)


# -------------------------------------------------------------------------------- steps with processes


def test_a_process_is_parked_and_restored_and_finds_its_state(site: Site) -> None:
    figures = process_steps.park_process(site, SMALL)
    assert figures["bits"] == "identical"


def test_memory_of_a_process_is_seen_and_waited_for_no_longer_than_the_deadline(site: Site) -> None:
    figures = process_steps.probe(site, SMALL)
    assert isinstance(figures["waited_s"], float)
    assert 0.5 <= figures["waited_s"] < 10


@pytest.mark.parametrize("step", [turn_steps.turns_of_processes, turn_steps.turns_of_regions])
def test_two_processes_take_turns_in_room_for_one(step: Callable[[Site, Scale], dict[str, object]], site: Site) -> None:
    figures = step(site, SMALL)
    assert figures["bits"] == "identical"
    assert isinstance(figures["switches"], int)
    assert figures["switches"] >= 2
    assert isinstance(figures["states_over_room"], float)
    assert figures["states_over_room"] > 1


def test_jobs_that_do_not_progress_or_were_never_parked_are_noticed() -> None:
    with pytest.raises(Failed, match="job a did not progress"):
        turn_steps._judged(SMALL, {"a": Account([1.0, 0.9, 1.1], [0.1])})
    with pytest.raises(Failed, match="job a was never parked"):
        turn_steps._judged(SMALL, {"a": Account([1.0, 0.9, 0.8])})


def test_two_jobs_that_fit_together_are_no_check_of_turns(site: Site) -> None:
    roomy = Scale(device="cpu", layers=1, hidden=64, vocabulary=64, spare_bytes=GIB)
    with pytest.raises(Impossible, match="a larger device is needed"):
        turn_steps.turns_of_processes(site, roomy)


def test_a_child_that_dies_or_fails_is_named() -> None:
    with Child(SMALL) as child:
        with pytest.raises(Failed, match=f"process {child.pid}, step: AttributeError"):
            child.ask("step")
        os.kill(child.pid, signal.SIGKILL)
        with pytest.raises(Failed, match=f"process {child.pid} ended with SIGKILL instead of an answer to 'step'"):
            child.ask("step")


# -------------------------------------------------------------------------------- steps apart, and what is said


def test_a_step_runs_in_a_process_of_its_own() -> None:
    outcome = steps.run_apart("region_200_switches", SMALL, 60)
    assert (outcome.status, outcome.reason) == (Status.PASSED, "")
    assert outcome.figures["state_mib_each"]


def test_a_step_that_hangs_is_ended_and_one_that_crashes_is_reported() -> None:
    late = steps.run_apart("region_model", SMALL, 0.2)
    assert (late.status, late.reason) == (Status.FAILED, "it did not end within 0.2 s")
    crashed = steps.run_apart("no such step", SMALL, 60)
    assert crashed.status is Status.FAILED
    assert "KeyError: 'no such step'" in crashed.reason


@without_gpu
def test_a_step_that_needs_a_gpu_says_why_it_is_impossible() -> None:
    answer = steps.carry_out("process_park", Scale())
    assert answer["status"] is Status.IMPOSSIBLE
    assert str(answer["reason"]).startswith("MissingDriver: ")


def test_a_failure_among_tasks_is_told_as_itself() -> None:
    error = Impossible("too old")
    assert steps._first(ExceptionGroup("tasks", [ExceptionGroup("inner", [error])])) is error


def test_what_is_missing_is_impossible_and_all_else_failed() -> None:
    assert {status_of(each) for each in (Impossible(), MissingDriver(), MissingExtra())} == {Status.IMPOSSIBLE}
    assert {status_of(each) for each in (Failed(), BackendError(), RuntimeError())} == {Status.FAILED}


def test_steps_for_which_no_time_is_left_have_failed() -> None:
    (outcome,) = command.run_all(SMALL, ["region_model"], budget_s=0.0)
    assert outcome.status is Status.FAILED
    assert outcome.reason.startswith("not begun")


def test_the_exit_status_is_0_unless_a_step_failed() -> None:
    passed = Outcome("x", Status.PASSED, figures={"gib_per_s": 1.25, "bits": "identical"})
    impossible = Outcome("y", Status.IMPOSSIBLE, "the driver is too old")
    failed = Outcome("z", Status.FAILED, "bits differ")
    assert exit_status([passed, impossible]) == 0
    assert exit_status([passed, failed]) == 1
    table = as_table({"device": "cpu"}, [passed, impossible, failed])
    assert [line.split()[0] for line in table.splitlines() if not line.startswith(" ")][1:] == [
        "passed",
        "impossible",
        "failed",
    ]
    assert "the driver is too old" in table
    assert "1.250" in table
    told = json.loads(json.dumps(as_object({"device": "cpu"}, [passed, impossible])))
    assert told["passed"] is True
    assert told["steps"]["x"]["figures"]["gib_per_s"] == 1.25


@without_gpu
def test_without_a_gpu_it_ends_with_2_and_one_clear_line() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu_check", "--json"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    (line,) = ended.stderr.splitlines()
    assert line.startswith("gpu-check: torch ")


@without_gpu
def test_torch_with_cuda_and_no_device_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    with pytest.raises(MissingDriver, match="torch finds no CUDA device"):
        Site("cuda:0")


@pytest.mark.gpu
@pytest.mark.timeout(300)
def test_every_step_that_is_possible_passes_on_a_gpu() -> None:
    command_line = [sys.executable, "-m", "benchmarks.gpu_check", "--json"]
    ended = subprocess.run(command_line, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout


def _tensor(content: bytes | bytearray) -> torch.Tensor:
    return torch.tensor(list(content), dtype=torch.uint8)
