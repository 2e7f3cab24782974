"""The mark on parked storages is used where it is proven, and else not at all."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tsched.backends.region import touch

DECLARED = """
  // All special checks are guarded behind this single boolean.
  bool has_mutable_data_ptr_check_ = false;
  // If we should throw when mutable_data_ptr() is called.
  bool throw_on_mutable_data_ptr_ = false;
  bool throw_on_immutable_data_ptr_ = false;
  bool warn_deprecated_on_mutable_data_ptr_ = false;
"""


def is_refused(tensor: torch.Tensor) -> bool:
    try:
        tensor.clone()
    except RuntimeError:
        return True
    return False


def test_a_mark_is_taken_back_and_leaves_the_other_marks_of_the_storage() -> None:
    tensor = torch.ones(8)
    torch._C._set_throw_on_mutable_data_ptr(tensor)
    touch.forbid(tensor.untyped_storage())
    assert is_refused(tensor)
    touch.allow(tensor.untyped_storage())
    assert not is_refused(tensor)
    with pytest.raises(RuntimeError):
        tensor.add_(1)


@pytest.mark.parametrize(
    ("header", "certain"),
    [
        (DECLARED, True),
        (None, False),
        ("", False),
        (DECLARED.replace("bool throw_on_immutable", "int throw_on_immutable"), False),
        (DECLARED.replace("bool throw_on_immutable", "bool another_ = false;\n  bool throw_on_immutable"), False),
        (DECLARED.replace("_ = false", "_ : 1"), False),
    ],
)
def test_a_build_that_declares_its_flags_otherwise_gets_no_mark(
    header: str | None, certain: bool, tmp_path: Path
) -> None:
    path = tmp_path / "StorageImpl.h"
    if header is not None:
        path.write_text(header)
    mark, tensor = touch.find_mark(path), torch.ones(4)
    mark(tensor.untyped_storage()._cdata, True)
    assert is_refused(tensor) == certain
    mark(tensor.untyped_storage()._cdata, False)
    assert not is_refused(tensor)
