"""A frozen tree stands still, also what was born while it froze; a control group does it unnoticed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.process_trees import FORKER, closing, identity, jobs, python
from tsched.backends.process import Identity, SignalFreezer
from tsched.backends.process.cgroup import CgroupFreezer, cgroup_of, freezer_for, mount_point, sweep
from tsched.backends.process.freezer import Freezer
from tsched.backends.process.tree import living_tree
from tsched.errors import BackendError

MakeFreezer = Callable[[Sequence[Identity]], Freezer]


def in_a_cgroup(tree: Sequence[Identity]) -> Freezer:
    try:
        return CgroupFreezer(tree)
    except (OSError, BackendError) as error:
        pytest.skip(f"no control group can be made here: {error}")


def by_signals(tree: Sequence[Identity]) -> Freezer:
    return SignalFreezer()


@pytest.fixture(params=[by_signals, in_a_cgroup])
def make(request: pytest.FixtureRequest) -> MakeFreezer:
    made: MakeFreezer = request.param
    return made


@pytest.fixture
def home() -> Iterator[Path]:
    """Where the groups of this process's children are."""
    try:
        folder = mount_point() / str(cgroup_of(os.getpid())).lstrip("/")
    except BackendError as error:
        pytest.skip(str(error))
    yield folder
    sweep(folder)


def cpu_ticks(process: Identity) -> int:
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(") ")[2].split()
    return int(fields[11]) + int(fields[12])


@pytest.mark.parametrize("times", range(3))
def test_children_that_are_born_while_a_tree_freezes_are_caught(make: MakeFreezer, times: int) -> None:
    with closing(python(FORKER.format(times=600, pause_s=0.003))) as forker:
        assert forker.stdout is not None
        forker.stdout.readline()
        root = [identity(forker.pid)]
        freezer = make(root)

        def members() -> list[Identity]:
            return living_tree([*root, *freezer.strays()])

        freezer.freeze(members, 20)
        frozen = members()
        assert len(frozen) > 5
        assert all(map(freezer.frozen, frozen))
        time.sleep(0.05)
        assert members() == frozen
        freezer.thaw(members, 20)
        assert not any(map(freezer.frozen, frozen))


def test_a_frozen_process_uses_no_processor(make: MakeFreezer) -> None:
    with closing(python("while True: pass")) as spinner:
        tree = [identity(spinner.pid)]
        freezer = make(tree)
        freezer.freeze(lambda: tree, 20)
        before = cpu_ticks(tree[0])
        time.sleep(0.2)
        assert cpu_ticks(tree[0]) == before
        freezer.thaw(lambda: tree, 20)
        until = time.monotonic() + 20
        while cpu_ticks(tree[0]) == before:
            assert time.monotonic() < until
            time.sleep(0.01)


def test_freezing_what_has_exited_is_no_error(make: MakeFreezer) -> None:
    with closing(python("input()")) as process:
        tree = [identity(process.pid)]
        freezer = make(tree)
        process.kill()
        process.wait()
        freezer.freeze(lambda: living_tree(tree), 20)
        freezer.thaw(lambda: living_tree(tree), 20)
        assert freezer.frozen(tree[0]), "who is gone does not run"
        freezer.close()


def test_a_control_group_stops_a_tree_unnoticed_by_its_parent(home: Path) -> None:
    with jobs() as (job,):
        tree = living_tree([identity(job.pid)])
        freezer = in_a_cgroup(tree)
        freezer.freeze(lambda: tree, 20)
        assert os.waitid(os.P_PID, job.pid, os.WSTOPPED | os.WNOHANG) is None
        freezer.thaw(lambda: tree, 20)


def test_a_process_that_was_taken_out_of_its_group_is_frozen_all_the_same(home: Path) -> None:
    with jobs() as (job,):
        tree = living_tree([identity(job.pid)])
        freezer = in_a_cgroup(tree)
        (home / "cgroup.procs").write_text(str(tree[1].pid))
        freezer.freeze(lambda: tree, 20)
        assert all(map(freezer.frozen, tree))
        freezer.thaw(lambda: tree, 20)


def test_a_tree_in_several_groups_is_stopped_with_signals(home: Path) -> None:
    elsewhere = home / "elsewhere"
    with jobs(2) as (first, second):
        in_a_cgroup(living_tree([identity(first.pid)]))
        elsewhere.mkdir()
        (elsewhere / "cgroup.procs").write_text(str(second.pid))
        assert isinstance(freezer_for([identity(first.pid), identity(second.pid)]), SignalFreezer)
        assert cgroup_of(second.pid) == f"/{elsewhere.relative_to(mount_point())}"
    until = time.monotonic() + 20
    while "populated 1" in (elsewhere / "cgroup.events").read_text():
        assert time.monotonic() < until
        time.sleep(0.001)
    elsewhere.rmdir()


def test_a_group_is_found_again_and_removed_when_its_job_has_ended(home: Path) -> None:
    with jobs() as (job,):
        tree = living_tree([identity(job.pid)])
        first, again = in_a_cgroup(tree), in_a_cgroup(tree)
        assert isinstance(first, CgroupFreezer)
        assert isinstance(again, CgroupFreezer)
        assert again.folder == first.folder
        sweep(home)
        assert first.folder.exists(), "its job lives"
    until = time.monotonic() + 20
    while first.folder.exists():
        sweep(home)
        assert time.monotonic() < until
