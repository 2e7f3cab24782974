"""The `cuda-checkpoint` program is the fallback; it is run for a bounded time and its words become typed errors."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tsched.backends.process import Limits, State, find_driver
from tsched.backends.process.binary import BinaryDriver
from tsched.errors import BackendError, DeviceMemoryFull, HostMemoryFull, MissingDriver

NO_DRIVER = pytest.mark.skipif(Path("/proc/driver/nvidia").exists(), reason="this machine has a driver")
_PROGRAM = """#!{python}
import os, pathlib, sys, time
options = dict(zip(sys.argv[1::2], sys.argv[2::2])) if "--get-state" not in sys.argv else {{"--pid": sys.argv[-1]}}
folder, pid = pathlib.Path({folder!r}), options["--pid"]
state = folder / pid
with open(folder / "calls", "a") as calls:
    calls.write(" ".join(sys.argv[1:]) + "\\n")
if not state.exists():
    sys.exit("Could not find process " + pid)
if "--get-state" in sys.argv:
    print(state.read_text())
    sys.exit()
action = options["--action"]
fault = folder / action
if fault.exists():
    word = fault.read_text()
    time.sleep(600) if word == "hang" else sys.exit("Error: " + word)
state.write_text({{"lock": "locked", "checkpoint": "checkpointed", "restore": "locked", "unlock": "running"}}[action])
"""


class Program:
    """A stand-in on the PATH, whose process 77 has a context."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        program = folder / "cuda-checkpoint"
        program.write_text(_PROGRAM.format(python=sys.executable, folder=str(folder)))
        program.chmod(0o755)
        (folder / "77").write_text("running")

    def fault(self, action: str, word: str) -> None:
        (self.folder / action).write_text(word)

    @property
    def calls(self) -> list[str]:
        return (self.folder / "calls").read_text().splitlines()


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    monkeypatch.setenv("PATH", str(tmp_path))
    return Program(tmp_path)


def test_it_carries_a_process_through_every_state(program: Program) -> None:
    driver = BinaryDriver()
    assert driver.state(77) is State.RUNNING
    driver.lock(77, 1.5)
    assert driver.state(77) is State.LOCKED
    driver.checkpoint(77)
    assert driver.state(77) is State.CHECKPOINTED
    driver.restore(77)
    driver.unlock(77)
    assert driver.state(77) is State.RUNNING
    assert [call for call in program.calls if "--get-state" not in call] == [
        "--action lock --timeout 1500 --pid 77",
        "--action checkpoint --pid 77",
        "--action restore --pid 77",
        "--action unlock --pid 77",
    ]


def test_a_process_without_a_context_has_no_state(program: Program) -> None:
    assert BinaryDriver().state(78) is None


@pytest.mark.parametrize(
    ("action", "word", "error"),
    [
        ("restore", "out of memory", DeviceMemoryFull),
        ("checkpoint", "out of memory", HostMemoryFull),
        ("checkpoint", "operation not supported", MissingDriver),
        ("lock", "operation not permitted", BackendError),
    ],
)
def test_its_words_become_typed_errors(program: Program, action: str, word: str, error: type[BackendError]) -> None:
    driver = BinaryDriver()
    program.fault(action, word)
    (program.folder / "77").write_text("checkpointed")
    with pytest.raises(error, match=f"{action} of process 77: Error: {word}") as raised:
        driver.lock(77, 1) if action == "lock" else getattr(driver, action)(77)
    assert type(raised.value) is error


def test_one_that_hangs_is_ended_in_time(program: Program) -> None:
    program.fault("restore", "hang")
    with pytest.raises(BackendError, match=r"restore of process 77: cuda-checkpoint timed out after 0.5 s"):
        BinaryDriver(Limits(restore_s=0.5)).restore(77)


@NO_DRIVER
def test_it_is_found_where_the_packages_find_no_driver(program: Program) -> None:
    assert isinstance(find_driver(), BinaryDriver)


@NO_DRIVER
def test_without_it_and_without_a_driver_the_mend_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingDriver) as missing:
        find_driver()
    for word in (
        "cuda-checkpoint is not on the PATH",
        "570",
        "12.8",
        "persistence mode",
        "pip install 'tsched[nvidia]'",
    ):
        assert word in str(missing.value)
    assert str(missing.value).count("570") == 1


def test_limits_of_no_time_are_refused() -> None:
    with pytest.raises(ValueError, match="restore_s must be more than 0 seconds, not 0"):
        Limits(restore_s=0)
