"""Whatever fails at whatever step, a job's processes are left where they were, or the error says where they are."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from tests.process_driver import ModelDriver, failing
from tsched.backends.process import Identity, Limits, State
from tsched.backends.process.calls import Calls
from tsched.backends.process.plan import STEPS, Plan
from tsched.errors import BackendError, DeviceMemoryFull, HostMemoryFull, MissingDriver

SOON = Limits(lock_s=0.03, checkpoint_s=0.05, restore_s=0.05, unlock_s=0.05)
RANKS = [Identity(pid, 1) for pid in (11, 12, 13)]
PIDS = [rank.pid for rank in RANKS]


class Ranks:
    """Three processes of one job on a model driver; a test may let one exit."""

    def __init__(self, state: State = State.RUNNING) -> None:
        self.driver = ModelDriver(PIDS)
        self.driver.states = dict.fromkeys(PIDS, state)
        self.gate = threading.Event()
        self.calls = Calls()

    def alive(self, rank: Identity) -> bool:
        return rank.pid in self.driver.states

    def plan(self, limits: Limits | None = None) -> Plan:
        return Plan(
            lambda: [rank for rank in RANKS if self.alive(rank)],
            self.driver,
            calls=self.calls,
            limits=limits,
            alive=self.alive,
        )

    def fault(self, kind: str, step: str, pid: int) -> Callable[[], None]:
        if kind == "late":
            return self.late
        return failing(step, pid) if kind == "fails" else partial(self.exit, pid)

    def late(self) -> None:
        assert self.gate.wait(20)

    def exit(self, pid: int) -> None:
        self.driver.states.pop(pid, None)
        raise BackendError(f"process {pid} is not there")

    def settle(self) -> None:
        self.gate.set()
        until = time.monotonic() + 20
        while any(map(self.calls.busy, RANKS)):
            assert time.monotonic() < until
            time.sleep(0.001)


def test_all_are_locked_before_any_is_checkpointed_and_restored_before_any_is_unlocked() -> None:
    ranks = Ranks()
    ranks.plan().suspend()
    ranks.plan().resume()
    names = [name for name, _ in ranks.driver.calls]
    assert names == ["lock"] * 3 + ["checkpoint"] * 3 + ["restore"] * 3 + ["unlock"] * 3


def test_the_processes_of_a_job_take_a_step_at_the_same_time() -> None:
    ranks, together = Ranks(), threading.Barrier(3)

    def meet() -> None:
        together.wait(10)

    ranks.driver.faults = {("lock", pid): meet for pid in PIDS}
    ranks.plan().suspend()
    assert not together.broken


def test_a_lock_that_fails_unlocks_the_others() -> None:
    ranks = Ranks()
    ranks.driver.faults["lock", 12] = failing("lock", 12, "CUDA_ERROR_NOT_READY")
    with pytest.raises(BackendError, match=r"lock of process 12: .*did not come to an end in time"):
        ranks.plan().suspend()
    assert set(ranks.driver.states.values()) == {State.RUNNING}
    assert ("checkpoint", 11) not in ranks.driver.calls


def test_a_checkpoint_that_fails_brings_the_others_back() -> None:
    ranks = Ranks()
    ranks.driver.faults["checkpoint", 13] = failing("checkpoint", 13, "CUDA_ERROR_OUT_OF_MEMORY")
    with pytest.raises(HostMemoryFull, match="checkpoint of process 13"):
        ranks.plan().suspend()
    assert set(ranks.driver.states.values()) == {State.RUNNING}


def test_a_restore_without_room_leaves_all_parked() -> None:
    ranks = Ranks(State.CHECKPOINTED)
    ranks.driver.faults["restore", 12] = failing("restore", 12, "CUDA_ERROR_OUT_OF_MEMORY")
    with pytest.raises(DeviceMemoryFull, match="restore of process 12"):
        ranks.plan().resume()
    assert set(ranks.driver.states.values()) == {State.CHECKPOINTED}


def test_what_cannot_be_taken_back_is_said() -> None:
    ranks = Ranks(State.CHECKPOINTED)
    ranks.driver.faults = {
        ("restore", 12): failing("restore", 12, "CUDA_ERROR_OUT_OF_MEMORY"),
        ("checkpoint", 11): failing("checkpoint", 11),
    }
    with pytest.raises(
        DeviceMemoryFull, match=r"taking it back failed as well: .*process 11 is locked, process 12 is c"
    ):
        ranks.plan().resume()


def test_a_failed_process_is_not_moved_and_the_mend_is_named() -> None:
    ranks = Ranks()
    ranks.driver.states[12] = State.FAILED
    with pytest.raises(BackendError, match=r"process 12 is failed, .*discard the job"):
        ranks.plan().suspend()
    assert ranks.driver.calls == []


def test_a_process_that_the_driver_does_not_know_is_no_parked_one() -> None:
    ranks = Ranks()
    plan = Plan(lambda: [*RANKS, Identity(99, 1)], ranks.driver, alive=lambda rank: True)
    with pytest.raises(BackendError, match="process 99 is unknown to the driver"):
        plan.suspend()
    assert set(ranks.driver.states.values()) == {State.RUNNING}


def test_a_process_that_appears_while_others_are_locked_is_locked_too() -> None:
    ranks = Ranks()
    late = ranks.driver.states.pop(13)
    ranks.driver.faults["lock", 11] = lambda: ranks.driver.states.update({13: late})
    ranks.plan().suspend()
    assert set(ranks.driver.states.values()) == {State.CHECKPOINTED}
    assert ranks.driver.calls[2] == ("lock", 13)


def test_an_order_waits_for_an_earlier_call_and_gives_up_in_time() -> None:
    ranks = Ranks(State.CHECKPOINTED)
    ranks.driver.faults["restore", 12] = ranks.late
    with pytest.raises(BackendError, match="restore of process 12 did not end within"):
        ranks.plan(SOON).resume()
    with pytest.raises(BackendError, match="process 12: an earlier call is still in the driver"):
        ranks.plan(SOON).suspend()
    assert ranks.driver.calls.count(("restore", 12)) == 1
    ranks.settle()
    assert set(ranks.driver.states.values()) == {State.CHECKPOINTED}


def test_a_driver_that_knows_no_checkpoints_is_a_missing_driver() -> None:
    ranks = Ranks()
    ranks.driver.faults["lock", 11] = failing("lock", 11, "CUDA_ERROR_NOT_SUPPORTED")
    with pytest.raises(MissingDriver, match="570"):
        ranks.plan().suspend()


FAULTS = st.dictionaries(
    st.tuples(st.sampled_from(sorted(STEPS)), st.sampled_from(PIDS)),
    st.sampled_from(["fails", "exits", "late"]),
    max_size=4,
)


@given(suspend=st.booleans(), faults=FAULTS)
def test_after_any_fault_all_are_where_they_were_or_the_error_says_where(
    suspend: bool, faults: dict[tuple[str, int], str]
) -> None:
    before, after = (State.RUNNING, State.CHECKPOINTED) if suspend else (State.CHECKPOINTED, State.RUNNING)
    ranks = Ranks(before)
    ranks.driver.faults = {(step, pid): ranks.fault(kind, step, pid) for (step, pid), kind in faults.items()}
    error = ""
    try:
        ranks.plan(SOON).suspend() if suspend else ranks.plan(SOON).resume()
    except BackendError as failure:
        error = str(failure)
    ranks.settle()
    states = ranks.driver.states
    event("failed" if error else "done")
    if not error:
        assert set(states.values()) <= {after}
    elif "taking it back failed" in error:
        event("not taken back")
        told = [pid for pid in PIDS if f"process {pid} is" in error]
        assert all(states[pid] is before for pid in states if pid not in told)
    else:
        undoing_fails = {pid for (step, pid) in faults if step in ("unlock", "restore" if suspend else "checkpoint")}
        excused = undoing_fails if "did not end within" in error else set()  # it was taken back later, unheard
        assert all(states[pid] is before for pid in states if pid not in excused)
    _no_step_was_skipped(ranks.driver.calls, suspend, faults)
    ranks.driver.faults.clear()
    ranks.plan().resume()
    assert set(states.values()) <= {State.RUNNING}, "whatever was left can be brought back"


def _no_step_was_skipped(calls: list[tuple[str, int]], suspend: bool, faults: dict[tuple[str, int], str]) -> None:
    first, second = ("lock", "checkpoint") if suspend else ("restore", "unlock")
    gone = {pid for (_, pid), kind in faults.items() if kind == "exits"}
    names = [name for name, _ in calls]
    if second in names:
        begun = {pid for name, pid in calls[: names.index(second)] if name == first}
        assert begun | gone >= set(PIDS), f"{second} before every process had been asked to {first}: {calls}"
