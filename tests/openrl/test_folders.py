"""A folder is there whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from openrl.folders import publish


def test_a_folder_has_all_its_files_when_it_appears(tmp_path: Path) -> None:
    target = tmp_path / "a" / "b"

    def write(unfinished: Path) -> None:
        assert not target.exists()
        (unfinished / "one").write_text("abc")

    assert publish(target, write) == 3
    assert (target / "one").read_text() == "abc"
    assert [path.name for path in target.parent.iterdir()] == ["b"]


def test_a_write_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def write(unfinished: Path) -> None:
        (unfinished / "one").write_text("abc")
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        publish(tmp_path / "b", write)
    assert list(tmp_path.iterdir()) == []


def test_what_is_published_is_never_written_again(tmp_path: Path) -> None:
    def write(unfinished: Path) -> None:
        (unfinished / "one").write_text(text)

    text = "abc"
    publish(tmp_path / "b", write)
    text = "other"
    assert publish(tmp_path / "b", write) == 3
    assert (tmp_path / "b" / "one").read_text() == "abc"
