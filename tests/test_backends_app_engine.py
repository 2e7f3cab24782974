"""What is said wrongly of an engine is told at once, and a missing package with the command that installs it."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from tsched.backends.app import Engine
from tsched.errors import BackendError, Invalid, UnknownRegion

RIGHT: dict[str, Any] = {"dialect": "sglang", "endpoints": ("http://127.0.0.1:8000",), "held_bytes": lambda: 0}

WRONG = [
    ({"dialect": "tgi"}, r"no dialect 'tgi'; there are: vllm, sglang"),
    ({"mode": "swap"}, r"no mode 'swap'; there are: offload, discard"),
    ({"endpoints": ()}, r"endpoints must be distinct addresses, at least one"),
    ({"endpoints": ("http://a", "http://a")}, r"endpoints must be distinct addresses"),
    ({"endpoints": ("localhost:8000",)}, r"an address such as 'http://host:8000', not 'localhost:8000'"),
    ({"endpoints": ("http://host:port",)}, r"an address such as"),
    ({"endpoints": ("http://",)}, r"an address such as"),
    ({"tags": ()}, r"tags must be distinct regions, at least one"),
    ({"tags": ("weights", "weights")}, r"tags must be distinct regions"),
    ({"dialect": "vllm", "tags": ("weights",)}, r"a vLLM engine sleeps as a whole, not \('weights',\) alone"),
    ({"asleep_bytes": -1}, r"asleep_bytes must be >= 0, not -1"),
    ({"drop_bytes": -1}, r"drop_bytes must be >= 0, not -1"),
    ({"timeout_s": 0}, r"timeout_s must be a number of seconds > 0, not 0"),
    ({"timeout_s": float("nan")}, r"timeout_s must be a number of seconds > 0, not nan"),
    ({"mode": "discard"}, r"from a path that is named: give `weights`"),
]


@pytest.mark.parametrize(("wrong", "said"), WRONG)
def test_what_is_wrong_is_named_with_what_would_be_right(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(Invalid, match=said):
        Engine(**RIGHT | wrong)


def test_an_unknown_region_is_named() -> None:
    with pytest.raises(UnknownRegion, match=r"no region 'optimizer'; there are: weights, kv_cache") as seen:
        Engine(**RIGHT | {"tags": ("optimizer",)})
    assert isinstance(seen.value, BackendError)


def test_an_engine_whose_cache_alone_goes_needs_no_path_of_weights() -> None:
    engine = Engine(**RIGHT | {"mode": "discard", "tags": ("kv_cache",)})
    assert not engine.loses_weights


def test_a_missing_package_is_told_with_the_command_that_installs_it() -> None:
    code = (
        "import sys; sys.modules['httpx'] = None\n"
        "from tsched.errors import MissingExtra\n"
        "import tsched\n"
        "try: import tsched.backends.app\n"
        "except MissingExtra as error: print(error)\n"
    )
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert "pip install 'tsched[app]'" in said
