"""What is sent is what arrives: orders, answers, and errors of every kind."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsched import errors
from tsched.backends import Order, Presence, Sizes
from tsched.rpc import wire
from tsched.rpc.limits import MAX_TEXT_BYTES
from tsched.rpc.processes import Process
from tsched.rpc.v1 import worker_pb2 as pb

names = st.text(max_size=20).filter(lambda text: text.isprintable())
sizes = st.integers(0, 2**62)
orders = st.builds(
    Order, st.integers(-(2**62), 2**62), names, names, names, sizes, sizes, st.none() | st.integers(0, 2**31)
)


@given(orders)
def test_an_order_survives(order: Order) -> None:
    message = pb.ToWorker.FromString(wire.order_message(3, pb.KIND_PARK, order, 5).SerializeToString())
    assert wire.order_of(message.order) == order
    assert (message.order.number, message.order.kind, message.order.deadline_us) == (3, pb.KIND_PARK, 5)


@given(st.builds(Presence, sizes, sizes, st.booleans()), st.builds(Sizes, sizes, sizes, sizes))
def test_answers_survive(presence: Presence, size: Sizes) -> None:
    assert wire.presence_of(wire.presence_message(presence)) == presence
    assert wire.sizes_of(wire.sizes_message(size)) == size


@given(st.integers(0, 2**31), st.integers(0, 2**63), names)
def test_a_process_survives(pid: int, started: int, host: str) -> None:
    process = Process(pid, started, host)
    assert wire.process_of(wire.process_message(process)) == process


@pytest.mark.parametrize(
    "error",
    [
        errors.Invalid("i"),
        errors.UnknownGroup("g"),
        errors.UnknownJob("j"),
        errors.DuplicateJob("d"),
        errors.NeverFits("n", "never_fits"),
        errors.WouldDeadlock("w", "deadlock"),
        errors.JobQuarantined("q", "quarantined"),
        errors.AcquireRefused("r", "job_left"),
        errors.LeaseLost("l"),
        errors.SchedulerClosed("s"),
        errors.JournalError("full disk"),
        errors.BackendError("b"),
        errors.StaleToken("t"),
        errors.HostMemoryFull("h"),
        errors.DeviceMemoryFull("m"),
        errors.UnknownRegion("u"),
        errors.ProcessGone("p"),
        errors.MissingDriver("v"),
    ],
)
def test_an_error_arrives_as_what_it_was(error: errors.TschedError) -> None:
    arrived = wire.as_error(wire.failure(error))
    assert type(arrived) is type(error)
    assert str(arrived) == str(error)
    assert getattr(arrived, "code", None) == getattr(error, "code", None)


def test_a_foreign_error_and_one_of_a_later_version_are_refusals_that_say_what_they_were() -> None:
    arrived = wire.as_error(wire.failure(ZeroDivisionError("by nought")))
    assert isinstance(arrived, errors.AcquireRefused)
    assert (str(arrived), arrived.code) == ("by nought", "internal")
    assert type(wire.as_backend_error(pb.Failure(code="of_later", text="x"))) is errors.BackendError


def test_a_long_text_is_cut_between_two_characters() -> None:
    told = wire.failure(errors.Invalid("é" * MAX_TEXT_BYTES))
    assert 0 < len(told.text.encode()) <= MAX_TEXT_BYTES
    assert set(told.text) == {"é"}
