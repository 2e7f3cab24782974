"""Every error has one root and a built-in relative, and survives a trip to another process."""

from __future__ import annotations

import inspect
import pickle

import pytest

from tsched import errors
from tsched.errors import AcquireRefused, NeverFits, TschedError

KINDS = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, TschedError)]


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_survives_pickling(kind: type[TschedError]) -> None:
    error = kind("job 'a' is not registered")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert (str(copy), copy.args, copy.__dict__) == (str(error), error.args, error.__dict__)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if issubclass(kind, AcquireRefused)])
def test_a_refusal_keeps_its_rule_and_shows_its_text_alone(kind: type[AcquireRefused]) -> None:
    copy = pickle.loads(pickle.dumps(kind("it needs 90 bytes", code="never_fits")))
    assert (copy.code, copy.detail, str(copy)) == ("never_fits", "it needs 90 bytes", "it needs 90 bytes")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind is not TschedError])
def test_an_error_is_also_a_built_in_one(kind: type[TschedError]) -> None:
    assert any(base.__module__ == "builtins" and base not in (Exception, object) for base in kind.__mro__[1:-3])


def test_callers_may_catch_the_root_or_the_built_in() -> None:
    with pytest.raises(RuntimeError, match="too large"):
        raise NeverFits("too large", "never_fits")
