"""The real binding against a stand-in driver library: figures are told as they are, and an unknown one is no zero."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import anyio
import pytest

from tests.engine_server import SIZE, Bench
from tsched.backends import Order, Presence
from tsched.backends.nvml import DeviceMemory, MemoryWatch, Nvml
from tsched.errors import BackendError, Invalid, MissingDriver, MissingExtra

pytestmark = pytest.mark.anyio

SOURCE = Path(__file__).parent / "libnvml" / "nvml.c"
SECOND_US = 1_000_000
GIB = 1 << 30


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stand-in, built; a folder for LD_LIBRARY_PATH."""
    return build(tmp_path_factory.mktemp("nvml"))


def build(folder: Path, *options: str) -> Path:
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("gcc is not here, so the stand-in for libnvidia-ml.so.1 cannot be built: install gcc")
    target = ["-Wl,-soname,libnvidia-ml.so.1", "-o", str(folder / "libnvidia-ml.so.1")]
    command = [gcc, "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", *options, *target, str(SOURCE)]
    subprocess.run(command, check=True)
    return folder


@pytest.fixture(scope="session")
def binding(library: Path) -> ModuleType:
    """A pynvml of its own. It finds the stand-in, which is loaded under the driver's name."""
    ctypes.CDLL(str(library / "libnvidia-ml.so.1"), mode=ctypes.RTLD_GLOBAL)
    found = importlib.util.find_spec("pynvml")
    assert found is not None
    assert found.origin is not None
    spec = importlib.util.spec_from_file_location("pynvml_on_the_stand_in", found.origin)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # it looks itself up there
    spec.loader.exec_module(module)
    return module


class Figures:
    """What the stand-in says, from the next call on."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def say(self, *lines: str) -> None:
        draft = self.path.with_suffix(".draft")
        draft.write_text("\n".join(lines) + "\n")
        draft.rename(self.path)


@pytest.fixture
def figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Figures:
    made = Figures(tmp_path / "figures")
    made.say(f"device GPU-a {8 * GIB} {3 * GIB} {5 * GIB} -", f"device GPU-b {8 * GIB} 0 {8 * GIB} 0")
    monkeypatch.setenv("TSCHED_NVML", str(made.path))
    return made


@pytest.fixture
def nvml(binding: ModuleType, figures: Figures) -> Iterator[Nvml]:
    made = Nvml(binding)
    yield made
    made.close()


def test_memory_is_read_by_index_and_by_uuid(nvml: Nvml) -> None:
    assert nvml.count() == 2
    assert nvml.memory() == nvml.memory("GPU-a") == DeviceMemory(8 * GIB, 3 * GIB, 5 * GIB)
    assert nvml.memory(1).free_bytes == 8 * GIB


def test_what_a_process_holds_is_summed_over_devices(nvml: Nvml, figures: Figures) -> None:
    devices = [f"device GPU-{name} {8 * GIB} 0 0 0" for name in "ab"]
    figures.say(*devices, "process GPU-a 11 100", "process GPU-b 11 20", "process GPU-b 12 3")
    assert nvml.processes() == {11: 120, 12: 3}
    assert nvml.processes(1) == nvml.processes("GPU-b") == {11: 20, 12: 3}
    assert nvml.held_bytes([11, 12]) == 123
    assert nvml.held_bytes([99]) == 0


def test_processes_of_a_divided_device_are_those_of_its_instances(nvml: Nvml, figures: Figures) -> None:
    figures.say(
        "device GPU-a 800 0 0 1",
        "instance GPU-a 0 MIG-x 100 40 60",
        "instance GPU-a 2 MIG-y 200 5 195",
        "process GPU-a 1 -",
        "process MIG-x 11 40",
        "process MIG-y 12 5",
    )
    assert nvml.count() == 1
    assert nvml.processes() == {11: 40, 12: 5}
    assert nvml.processes("MIG-y") == {12: 5}
    assert nvml.memory("MIG-x") == DeviceMemory(100, 40, 60)


def test_a_figure_that_the_driver_does_not_give_is_not_taken_for_nothing(nvml: Nvml, figures: Figures) -> None:
    figures.say("device GPU-a 800 0 0 0", "device GPU-b 800 0 0 0", "process GPU-a 11 -", "process GPU-b 11 7")
    assert nvml.processes() == {11: None}
    with pytest.raises(MissingDriver, match=r"does not tell what process 11 holds .*: watch the device's used bytes"):
        nvml.held_bytes([11])
    assert nvml.held_bytes([12]) == 0


@pytest.mark.parametrize("line", ["device GPU-a - 0 0 0", "device GPU-a 800 - 0 0"])
def test_a_device_without_memory_of_its_own_says_so(nvml: Nvml, figures: Figures, line: str) -> None:
    figures.say(line)
    with pytest.raises(MissingDriver, match=r"^NVML"):
        nvml.memory()


@pytest.mark.parametrize("device", [2, "GPU-c"])
def test_an_unknown_device_is_a_mistake_that_is_named(nvml: Nvml, device: int | str) -> None:
    with pytest.raises(Invalid, match=f"device {device}: .*: name a device by an index or UUID that nvidia-smi lists"):
        nvml.memory(device)


def test_processes_that_the_driver_does_not_list_are_refused_as_a_port(nvml: Nvml, figures: Figures) -> None:
    with pytest.raises(BackendError, match=r"none of the processes \[11\]: .*--pid=host"):
        nvml.holder([11])
    figures.say("device GPU-a 800 0 0 0", "process GPU-a 11 40")
    held = nvml.holder([11, 12])
    assert held() == 40
    figures.say("device GPU-a 800 0 0 0")
    assert held() == 0


@pytest.mark.parametrize("code", [9, 12])
def test_a_driver_that_is_not_there_is_told(binding: ModuleType, figures: Figures, code: int) -> None:
    figures.say(f"init {code}")
    with pytest.raises(MissingDriver, match=r"NVML cannot read the driver: .*: is the NVIDIA driver installed"):
        Nvml(binding)


def test_a_missing_package_is_told_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(MissingExtra, match=r"pip install 'tsched\[nvidia\]'"):
        Nvml()


def python(code: str, **environment: str) -> str:
    run = [sys.executable, "-c", code]
    return subprocess.run(run, env={**os.environ, **environment}, check=True, capture_output=True, text=True).stdout


def test_the_library_is_found_by_its_own_name(library: Path, figures: Figures) -> None:
    code = "from tsched.backends.nvml import Nvml; print(Nvml().memory(0).used_bytes)"
    said = python(code, LD_LIBRARY_PATH=str(library), TSCHED_NVML=str(figures.path))
    assert int(said) == 3 * GIB


def test_a_driver_that_is_too_old_is_told(tmp_path: Path, figures: Figures) -> None:
    code = (
        "from tsched.backends.nvml import Nvml\n"
        "from tsched.errors import MissingDriver\n"
        "try: Nvml().processes()\n"
        "except MissingDriver as error: print(error)\n"
    )
    said = python(code, LD_LIBRARY_PATH=str(build(tmp_path, "-DOLD")), TSCHED_NVML=str(figures.path))
    assert "the driver is too old for nvidia-ml-py: update it" in said


def test_without_a_library_the_driver_is_missing() -> None:
    code = (
        "import ctypes\n"
        "from tsched.backends.nvml import Nvml\n"
        "from tsched.errors import MissingDriver\n"
        "try: ctypes.CDLL('libnvidia-ml.so.1')\n"
        "except OSError: pass\n"
        "else: print('driver'); raise SystemExit\n"
        "try: Nvml()\n"
        "except MissingDriver as error: print(error)\n"
    )
    said = python(code, LD_LIBRARY_PATH="")
    if said.strip() == "driver":
        pytest.skip("this machine has an NVIDIA driver")
    assert "is the NVIDIA driver installed" in said


# ------------------------------------------------------------------------------------------------- the watch


class Level:
    """A figure that a test sets, and how often it was read."""

    def __init__(self, held_bytes: int) -> None:
        self.held_bytes, self.reads = held_bytes, 0

    def read(self) -> int:
        self.reads += 1
        return self.held_bytes


async def test_a_watch_returns_as_soon_as_no_more_is_held_than_may_be() -> None:
    level = Level(100)
    watch = MemoryWatch(level.read, interval_s=0.005)

    async def fall() -> None:
        for level.held_bytes in (80, 60, 40):
            await anyio.sleep(0.03)

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fall)
            assert await watch.at_most(60, deadline_us=60 * SECOND_US) == 60
            assert await watch.fallen(40, since_bytes=80, deadline_us=60 * SECOND_US) == 40


async def test_a_watch_says_what_is_held_when_its_deadline_has_passed() -> None:
    level = Level(100)
    began = time.monotonic()
    assert await MemoryWatch(level.read, interval_s=0.01).at_most(0, deadline_us=60_000) == 100
    assert 0.05 < time.monotonic() - began < 10
    assert 2 <= level.reads <= 8
    level.reads = 0
    assert await MemoryWatch(level.read).at_most(0, deadline_us=0) == 100
    assert level.reads == 1


async def test_a_watch_can_be_cancelled_while_it_waits_and_while_the_driver_hangs() -> None:
    over = threading.Event()

    def hang() -> int:
        over.wait(20)
        return 0

    began = time.monotonic()
    for read in (Level(1).read, hang):
        with anyio.move_on_after(0.05) as scope:
            await MemoryWatch(read).at_most(0, deadline_us=60 * SECOND_US)
        assert scope.cancelled_caught
    assert time.monotonic() - began < 10
    over.set()


def test_a_watch_without_a_pause_is_refused() -> None:
    with pytest.raises(Invalid, match="interval_s must be a number of seconds > 0, not 0"):
        MemoryWatch(Level(0).read, interval_s=0)


async def test_a_grant_of_memory_waits_for_what_the_driver_says(nvml: Nvml, figures: Figures) -> None:
    """An engine sleeps at once; the driver's figure follows, and the probe with it."""
    device = f"device GPU-a {8 * GIB} 0 0 0"
    figures.say(device, f"process GPU-a 11 {SIZE + 100}")
    rig = Bench()
    try:
        rig.start(held_bytes=nvml.holder([11]), asleep_bytes=100)
        await rig.park(Order(1, "g", "0", "a", 1))
        assert (await rig.look(deadline_us=50_000)).resident_bytes == SIZE

        async def fall() -> None:
            await anyio.sleep(0.05)
            figures.say(device, "process GPU-a 11 100")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fall)
            assert await rig.look(deadline_us=20 * SECOND_US) == Presence(0, SIZE, True)
    finally:
        rig.close()
