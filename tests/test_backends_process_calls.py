"""A call that blocks is waited for so long and no longer, and takes back what it did too late."""

from __future__ import annotations

import threading
import time

import pytest

from tsched.backends.process import Identity
from tsched.backends.process.calls import Calls, Late
from tsched.errors import BackendError

ONE, TWO = Identity(11, 1), Identity(12, 1)


def nothing(process: Identity) -> None:
    return


def until_idle(calls: Calls, process: Identity) -> None:
    until = time.monotonic() + 20
    while calls.busy(process):
        assert time.monotonic() < until
        time.sleep(0.001)


def test_one_that_fails_does_not_stop_the_other() -> None:
    called: list[Identity] = []

    def act(process: Identity) -> None:
        called.append(process)
        if process is ONE:
            raise ValueError("odd")

    failures = Calls().each("lock", [ONE, TWO], act, undo=nothing, limit_s=20)
    assert sorted(called) == [ONE, TWO]
    assert list(failures) == [ONE]
    assert isinstance(failures[ONE], BackendError)
    assert str(failures[ONE]) == "process 11: odd"


def test_one_that_is_late_is_undone_when_it_ends() -> None:
    calls, gate, undone = Calls(), threading.Event(), list[Identity]()

    def act(process: Identity) -> None:
        assert gate.wait(20)

    failures = calls.each("restore", [ONE], act, undo=undone.append, limit_s=0.02)
    assert isinstance(failures[ONE], Late)
    assert calls.busy(ONE)
    assert undone == []
    with pytest.raises(BackendError, match=r"still in the driver after 0.02 s"):
        calls.settle([ONE], 0.02)
    gate.set()
    calls.settle([ONE], 20)
    assert undone == [ONE]


def test_one_that_fails_late_is_not_undone() -> None:
    calls, gate, undone = Calls(), threading.Event(), list[Identity]()

    def act(process: Identity) -> None:
        assert gate.wait(20)
        raise BackendError("no")

    calls.each("restore", [ONE], act, undo=undone.append, limit_s=0.02)
    gate.set()
    until_idle(calls, ONE)
    assert undone == []


def test_one_that_ends_in_time_is_not_undone_and_not_busy() -> None:
    calls, undone = Calls(), list[Identity]()
    assert calls.each("lock", [ONE, TWO], nothing, undo=undone.append, limit_s=20) == {}
    until_idle(calls, ONE)
    assert undone == []
