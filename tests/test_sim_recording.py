"""Turns become programs that repeat them, however they overlapped."""

from __future__ import annotations

from tsched.model import Group, Job
from tsched.sim import Acquire, Fixed, Run, Workload, Yield, simulate
from tsched.sim.recording import Turn, hand_overs, makespan_us, replay, switch_costs

ONE = Turn("a", ("t",), 0, 2, ((10, ("t",)),))


def test_what_passed_between_two_events_of_a_job_is_a_run_unless_it_was_a_wait() -> None:
    later = Turn("a", ("s",), 13, 20, ((26, ("s",)),), "generate")
    (only,) = replay([ONE, later])
    assert only.program.contexts[0].steps == (
        Acquire(("t",), "t"),
        Run(Fixed(8), "grant t -> yield t"),
        Yield(("t",)),
        Run(Fixed(3), "yield t -> ask s"),
        Acquire(("s",), "generate"),
        Run(Fixed(6), "grant s -> yield s"),
        Yield(("s",)),
    )
    assert only.ends_us == ((2, 10, 10, 13, 20, 26, 26),)


def test_a_turn_within_another_is_nested() -> None:
    within = Turn("a", ("s",), 5, 7, ((20, ("s",)),))
    (only,) = replay([ONE, within])
    acquires = [step for step in only.program.contexts[0].steps if isinstance(step, Acquire)]
    assert [step.nested for step in acquires] == [False, True]
    result = simulate(Workload("w", (Group("t"), Group("s")), (only.program,))).result
    assert result.makespan_s == (20 - 2 - 2) / 1e6  # all but the two waits


def test_a_job_that_went_on_while_it_waited_gets_a_context_for_each_group() -> None:
    meanwhile = Turn("a", ("s",), 5, 12, ((20, ("s",)),))
    (only,) = replay([ONE, meanwhile])
    assert [context.name for context in only.program.contexts] == ["s", "t"]


def test_jobs_that_nested_in_opposite_orders_get_a_context_for_each_group() -> None:
    turns = [
        Turn("a", ("t",), 0, 0, ((30, ("t",)),)),
        Turn("a", ("s",), 10, 10, ((30, ("s",)),)),
        Turn("b", ("s",), 40, 40, ((70, ("s",)),)),
        Turn("b", ("t",), 50, 50, ((70, ("t",)),)),
    ]
    programs = tuple(each.program for each in replay(turns))
    assert [len(program.contexts) for program in programs] == [2, 2]
    simulate(Workload("w", (Group("t"), Group("s")), programs))


def test_events_of_no_length_keep_their_order() -> None:
    turns = [Turn("a", ("t",), at, at, ((at, ("t",)),)) for at in (0, 0, 5)]
    (only,) = replay(turns)
    result = simulate(Workload("w", (Group("t"),), (only.program,))).result
    assert result.makespan_s == 5e-6


def test_several_groups_and_partial_yields_are_kept() -> None:
    turn = Turn("a", ("s", "t"), 0, 0, ((5, ("t",)), (9, ("s",))))
    (only,) = replay([turn], [Job("a", weight=3.0)])
    assert only.program.job.weight == 3.0
    yields = [step for step in only.program.contexts[0].steps if isinstance(step, Yield)]
    assert yields == [Yield(("t",)), Yield(("s",))]


def test_switches_are_counted_from_the_later_of_yield_and_request_between_jobs_alone() -> None:
    turns = [
        Turn("a", ("g",), 0, 0, ((10, ("g",)),)),
        Turn("a", ("g",), 11, 12, ((20, ("g",)),)),
        Turn("b", ("g",), 15, 23, ((30, ("g",)),)),
        Turn("a", ("g",), 35, 39, ((40, ("g",)),)),
        Turn("b", ("g",), 36, 45, ((50, ("g",)),)),
    ]
    assert hand_overs(turns) == {"g": [3, 4, 5]}
    assert switch_costs(turns) == {"g": 4}
    assert makespan_us(turns) == 50
