"""The real binding, and the backend on it, against a stand-in for the driver (`tests/libcuda`)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.libcuda.checks import CHECKS

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a libcuda.so.1 that was just built."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is needed to build the stand-in for libcuda.so.1")
    if find_spec("cuda") is None or find_spec("cuda.core") is None:
        pytest.skip("cuda-core and cuda-bindings are not installed: pip install 'tsched[nvidia]'")
    folder = tmp_path_factory.mktemp("libcuda")
    source = ROOT / "tests" / "libcuda" / "libcuda.c"
    flags = ["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-Wl,-soname,libcuda.so.1"]
    subprocess.run(["gcc", *flags, "-o", folder / "libcuda.so.1", source, "-ldl"], check=True)
    return folder


LOOPS = {"the_contract_is_kept": ("asyncio", "trio")}


@pytest.mark.parametrize(("check", "loop"), [(name, loop) for name in CHECKS for loop in LOOPS.get(name, ("asyncio",))])
def test_with_a_stand_in_for_the_driver(library: Path, tmp_path: Path, check: str, loop: str) -> None:
    states = tmp_path / "states"
    states.mkdir()
    environment = os.environ | {"LD_LIBRARY_PATH": str(library), "TSCHED_LIBCUDA": str(states)}
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.libcuda.checks", check, loop],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert ended.returncode == 0, ended.stderr
