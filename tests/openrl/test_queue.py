"""The queue, one event after the other: what may run next."""

from __future__ import annotations

import pytest

from openrl.queue import (
    Answered,
    BringBack,
    Draw,
    Drop,
    Effect,
    Failed,
    Lease,
    Limits,
    Line,
    Lost,
    Persist,
    Persisted,
    Queue,
    Run,
    Unit,
    Waiting,
)

WORKER = "worker"
BAD = Failed("bad", "user")


def unit(model: str, seq: int, *, mutates: bool = True, settles: bool = False) -> Unit:
    return Unit(seq, f"{model}{seq}", b"", mutates, settles)


def queue_of(*models: str, limits: Limits | None = None) -> Queue:
    """A queue whose models have been made."""
    queue = Queue(limits)
    for model in models:
        queue.submitted(model, unit(model, 0))
        did(queue, Run(model, 0, f"{model}0"))
    return queue


def leased(queue: Queue, worker: str = WORKER) -> Lease:
    lease = queue.lease(worker)
    assert lease is not None
    queue.check()
    return lease


def did(queue: Queue, step: object, failed: Failed | None = None) -> list[Effect]:
    """The next step is this one, and it ends so."""
    lease = leased(queue)
    assert lease.step == step
    effects = queue.finished(lease.number, failed)
    queue.check()
    return effects


def test_a_gap_is_waited_for_and_then_all_run_in_order() -> None:
    queue = queue_of("m")
    for seq in (3, 2):
        queue.submitted("m", unit("m", seq))
        assert queue.lease(WORKER) is None
    queue.submitted("m", unit("m", 1))
    for seq in (1, 2, 3):
        assert did(queue, Run("m", seq, f"m{seq}")) == [Answered(f"m{seq}")]
    assert queue.lease(WORKER) is None


def test_models_and_sampling_sessions_take_turns() -> None:
    queue = queue_of("a", "b", limits=Limits(batch_sequences=1))
    for seq in (1, 2):
        for model in ("a", "b"):
            queue.submitted(model, unit(model, seq))
        queue.sample_submitted(Waiting(f"s{seq}", "session", "base"))
    order = []
    while (lease := queue.lease(WORKER)) is not None:
        order.append(getattr(lease.step, "model_id", "sample"))
        queue.finished(lease.number)
    assert order == ["b", "a", "sample"] * 2


def test_a_batch_is_of_the_same_weights_and_has_room_for_so_many_sequences() -> None:
    queue = Queue(Limits(batch_sequences=4))
    for number, (session, weights, size) in enumerate(
        [("x", "w1", 2), ("x", "w1", 1), ("y", "w2", 1), ("z", "w1", 1), ("z", "w1", 1), ("x", "w1", 9)]
    ):
        queue.sample_submitted(Waiting(str(number), session, weights, size))
    batches = [leased(queue).step for _ in range(4)]
    assert batches == [Draw(("0", "1", "3")), Draw(("2",)), Draw(("4",)), Draw(("5",))]


def test_each_request_of_a_batch_has_its_own_outcome() -> None:
    queue = Queue()
    for number in range(2):
        queue.sample_submitted(Waiting(str(number), "x", "w"))
    lease = leased(queue)
    assert queue.finished(lease.number, each=[None, BAD]) == [Answered("0"), Answered("1", BAD)]


def test_after_a_crash_units_run_silently_from_the_durable_state_and_then_go_on() -> None:
    queue = queue_of("m", limits=Limits(replay_units=3))
    for seq in range(1, 7):
        queue.submitted("m", unit("m", seq, mutates=seq != 4))
    did(queue, Run("m", 1, "m1"))
    did(queue, Run("m", 2, "m2"))
    assert did(queue, Persist("m", 2)) == [Persisted("m", 2)]
    did(queue, Run("m", 3, "m3"))
    did(queue, Run("m", 4, "m4"))
    did(queue, Run("m", 5, "m5"), BAD)
    assert leased(queue).step == Run("m", 6, "m6")
    assert queue.worker_died(WORKER) == []
    assert did(queue, BringBack("m", 2)) == []
    assert did(queue, Run("m", 3, "m3", silent=True)) == []
    assert did(queue, Run("m", 6, "m6")) == [Answered("m6")]


def test_a_model_without_durable_state_is_made_again() -> None:
    queue = queue_of("m")
    queue.submitted("m", unit("m", 1))
    queue.worker_died(WORKER)
    assert did(queue, Run("m", 0, "m0", silent=True)) == []
    did(queue, Run("m", 1, "m1"))


def test_what_is_reported_of_a_lease_that_was_taken_back_changes_nothing() -> None:
    queue = queue_of("m")
    queue.submitted("m", unit("m", 1))
    lease = leased(queue)
    queue.worker_died(WORKER)
    assert queue.finished(lease.number) == []
    did(queue, Run("m", 0, "m0", silent=True))
    assert did(queue, Run("m", 1, "m1")) == [Answered("m1")]


def test_a_unit_that_kills_its_worker_each_time_is_given_up() -> None:
    queue = queue_of("m")
    for seq in (1, 2):
        queue.submitted("m", unit("m", seq))
    given_up = Answered("m1", Failed("the worker died 3 times in a row on this request: it is given up"))
    for effects in ([], [], [given_up]):
        assert leased(queue).step == Run("m", 1, "m1")
        assert queue.worker_died(WORKER) == effects
        did(queue, Run("m", 0, "m0", silent=True))
    did(queue, Run("m", 2, "m2"))


def test_a_sample_that_may_have_killed_its_worker_is_drawn_alone_so_that_the_others_are_spared() -> None:
    queue = Queue()
    for number in range(3):
        queue.sample_submitted(Waiting(str(number), "x", "w"))
    assert leased(queue).step == Draw(("0", "1", "2"))
    assert queue.worker_died(WORKER) == []
    for number in range(3):
        assert leased(queue).step == Draw((str(number),))


def test_a_model_that_differs_when_run_again_is_lost_with_what_waits_and_frees_its_memory() -> None:
    queue = queue_of("m", "other")
    queue.submitted("m", unit("m", 1))
    did(queue, Run("m", 1, "m1"))
    for model in ("m", "other"):
        queue.submitted(model, unit(model, 2 if model == "m" else 1))
    queue.worker_died(WORKER)
    did(queue, Run("m", 0, "m0", silent=True))
    did(queue, Run("other", 0, "other0", silent=True))
    lost, answered = did(queue, Run("m", 1, "m1", silent=True), BAD)
    assert isinstance(lost, Lost)
    assert "request 1, which had succeeded, failed when it was run again" in lost.failed.error
    assert isinstance(answered, Answered)
    assert answered.request_id == "m2"
    did(queue, Run("other", 1, "other1"))
    did(queue, Drop("m"))
    (late,) = queue.submitted("m", unit("m", 3))
    assert isinstance(late, Answered)


def test_a_model_that_nobody_needs_is_made_durable_and_dropped_and_comes_back_when_asked_for() -> None:
    queue = queue_of("m")
    queue.submitted("m", unit("m", 1))
    queue.released("m")
    did(queue, Run("m", 1, "m1"))
    did(queue, Persist("m", 1))
    did(queue, Drop("m"))
    assert queue.lease(WORKER) is None
    queue.submitted("m", unit("m", 2))
    did(queue, BringBack("m", 1))
    did(queue, Run("m", 2, "m2"))
    assert not queue.forgotten("m")


def test_a_request_that_comes_while_the_model_is_being_dropped_brings_it_back() -> None:
    queue = queue_of("m")
    queue.released("m")
    did(queue, Persist("m", 0))
    lease = leased(queue)
    assert lease.step == Drop("m")
    queue.submitted("m", unit("m", 1))
    queue.finished(lease.number)
    did(queue, BringBack("m", 0))
    did(queue, Run("m", 1, "m1"))


def test_state_that_cannot_be_made_durable_is_tried_again_after_as_much_work() -> None:
    queue = queue_of("m", limits=Limits(replay_units=2))
    for seq in range(1, 4):
        queue.submitted("m", unit("m", seq))
    did(queue, Run("m", 1, "m1"))
    assert did(queue, Persist("m", 1), Failed("disk full")) == []
    did(queue, Run("m", 2, "m2"))
    did(queue, Run("m", 3, "m3"))
    assert did(queue, Persist("m", 3)) == [Persisted("m", 3)]


def test_state_is_made_durable_right_after_what_must_not_be_run_again_and_after_costly_work() -> None:
    queue = queue_of("m", limits=Limits(replay_us=1_000))
    queue.submitted("m", unit("m", 1, settles=True))
    queue.submitted("m", unit("m", 2))
    did(queue, Run("m", 1, "m1"))
    did(queue, Persist("m", 1))
    lease = leased(queue)
    queue.finished(lease.number, cost_us=2_000)
    did(queue, Persist("m", 2))


def test_a_cancelled_unit_is_passed_over_and_one_that_runs_is_not_cancelled() -> None:
    queue = queue_of("m")
    for seq in (1, 2, 3):
        queue.submitted("m", unit("m", seq))
    lease = leased(queue)
    assert queue.cancelled("m1", BAD) == []
    assert queue.cancelled("m2", BAD) == [Answered("m2", BAD)]
    assert queue.cancelled("m2", BAD) == []
    queue.finished(lease.number)
    did(queue, Run("m", 3, "m3"))


def test_a_cancelled_sample_is_not_drawn() -> None:
    queue = Queue()
    queue.sample_submitted(Waiting("0", "x", "w"))
    assert queue.cancelled("0", BAD) == [Answered("0", BAD)]
    assert queue.lease(WORKER) is None


def test_a_model_stays_with_the_worker_that_has_it_and_another_worker_takes_others() -> None:
    queue = queue_of("m")
    queue.submitted("m", unit("m", 1))
    queue.submitted("new", unit("new", 0))
    assert leased(queue, "second").step == Run("new", 0, "new0")
    assert queue.lease("second") is None
    assert queue.worker_died("second") == []
    assert leased(queue).step == Run("m", 1, "m1")


@pytest.mark.parametrize(
    ("counter", "says"), [("attempts", "on this request"), ("recoveries", "brought this model back")]
)
def test_what_took_the_whole_service_down_too_often_is_not_tried_again(counter: str, says: str) -> None:
    queue = Queue(Limits(restarts=4))
    line = Line("m", queue.limits)
    setattr(line, counter, 4)
    line.add(unit("m", 0))
    errors = [effect.failed.error for effect in queue.restored(line) if isinstance(effect, Answered) and effect.failed]
    assert any("the service died 4 times in a row" in error and says in error for error in errors)
