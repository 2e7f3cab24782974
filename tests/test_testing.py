"""What `tsched.testing` offers by name, with and without Hypothesis."""

from __future__ import annotations

import sys

import pytest

import tsched.testing
from tsched.errors import MissingExtra


@pytest.mark.parametrize("name", tsched.testing.__all__)
def test_everything_that_is_offered_is_there(name: str) -> None:
    assert callable(getattr(tsched.testing, name))


def test_without_hypothesis_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tsched.testing.policy_suite", None)
    with pytest.raises(MissingExtra, match=r"pip install 'tsched\[testing\]'"):
        tsched.testing.check_policy  # noqa: B018
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        tsched.testing.nothing  # noqa: B018
