"""The names of checkpoints, which lead nowhere."""

from __future__ import annotations

import pytest

from openrl.errors import RequestError
from openrl.service import check_name, check_path, path_of


@pytest.mark.parametrize(
    "name", ["final", "000010", "step-3", "epoch=1,".strip(","), "a.b", "_x", "A:B@c+d", "x" * 128]
)
def test_ordinary_names_will_do(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize(
    "name", ["", ".", "..", ".x", "a..b", "a/b", "/a", "a\\b", "a b", "a\n", "ä", "x" * 129, "-rf"]
)
def test_names_that_could_leave_their_folder_will_not(name: str) -> None:
    with pytest.raises(RequestError, match=r"will not do.*no slash"):
        check_name(name)


def test_a_path_is_made_of_a_model_a_kind_and_a_name() -> None:
    path = path_of("s:train:0", "sampler", "final")
    assert path == "tinker://s:train:0/sampler_weights/final"
    assert check_path(path) == path


@pytest.mark.parametrize(
    "path", ["", "final", "tinker://a/weights", "tinker://a/b/c", "http://a/weights/b", "tinker://a/weights/b/c"]
)
def test_what_is_no_path_is_told_what_one_is(path: str) -> None:
    with pytest.raises(RequestError, match="is no checkpoint: tinker://<model id>"):
        check_path(path)
