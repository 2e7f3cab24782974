"""The three jobs, for real and small: in turns they learn what they learn alone, to the last bit."""

from __future__ import annotations

import multiprocessing
from functools import partial

import anyio
import pytest

pytest.importorskip("torch", reason="pip install 'tsched[demo]'")
pytest.importorskip("transformers", reason="pip install 'tsched[demo]'")

from examples.three_jobs.devices import devices
from examples.three_jobs.figures import measured, rows
from examples.three_jobs.jobs import JOBS, job
from examples.three_jobs.plan import Phase
from examples.three_jobs.prediction import predict
from examples.three_jobs.process import SAMPLERS, TRAINERS
from examples.three_jobs.runner import JobFailed, Run, Stage, run
from tsched.backends.arena import Arena
from tsched.commands import Park, Restore

pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    folder = tmp_path_factory.mktemp("jobs")
    return Stage("tiny", 0, "fifo", devices([job(name, "tiny") for name in JOBS], folder, 0.67), folder)


def nothing(name: str, phase: Phase) -> None:
    pass


@pytest.fixture(scope="module")
def solos(stage: Stage) -> dict[str, Run]:
    return {
        name: anyio.run(partial(run, [name], stage, stage.folder / f"{name}.jsonl", nothing, moves=True))
        for name in JOBS
    }


@pytest.fixture(scope="module")
def together(stage: Stage) -> Run:
    return anyio.run(partial(run, list(JOBS), stage, stage.folder / "together.jsonl", nothing))


def test_every_job_learns_in_turns_what_it_learns_alone(solos: dict[str, Run], together: Run) -> None:
    for name, alone in solos.items():
        assert together.outcomes[name] == alone.outcomes[name]
        assert len(set(together.outcomes[name].imitation_loss)) > 1


def test_states_were_parked_and_the_devices_memory_never_exceeded(stage: Stage, together: Run) -> None:
    moved = {
        (type(command), command.group)
        for record in together.records
        for command in record.commands
        if isinstance(command, Park | Restore)
    }
    assert {(Park, TRAINERS), (Restore, TRAINERS)} <= moved
    for group in (TRAINERS, SAMPLERS):
        device = stage.devices.of(group)
        assert 0 < Arena(device.capacity_bytes, device.arena).peak_bytes <= device.capacity_bytes


def test_a_park_and_a_restore_between_every_two_phases_change_nothing(stage: Stage, solos: dict[str, Run]) -> None:
    """Another job, of which nothing is known and which therefore needs all the memory, has its turn in between."""
    for name in ("sql", "dialogue"):
        log = stage.folder / f"{name}-disturbed.jsonl"
        disturbed = anyio.run(partial(run, [name], stage, log, nothing, disturbed=True))
        assert disturbed.outcomes[name] == solos[name].outcomes[name]
        parks = [
            command
            for record in disturbed.records
            for command in record.commands
            if isinstance(command, Park) and command.job == name and command.group == TRAINERS
        ]
        turns = len(solos[name].outcomes[name].imitation_loss) + len(solos[name].outcomes[name].policy_loss)
        assert len(parks) >= turns


def test_a_job_whose_process_dies_stops_no_other(stage: Stage) -> None:
    done: list[str] = []

    def kill_sql(name: str, phase: Phase) -> None:
        done.append(name)
        if name == "sql":
            for process in multiprocessing.active_children():
                if process.name == f"sql {SAMPLERS}":
                    process.kill()

    with pytest.raises(BaseExceptionGroup) as failure:
        anyio.run(partial(run, list(JOBS), stage, stage.folder / "killed.jsonl", kill_sql))
    assert failure.group_contains(JobFailed, match="of sql ended early")
    whole = {name: sum(phase.device != "cpu" for phase in plan_of(name)) for name in JOBS}
    assert all(done.count(name) == whole[name] for name in ("arithmetic", "dialogue"))


def test_the_table_follows_from_the_logs(stage: Stage, solos: dict[str, Run], together: Run) -> None:
    groups = stage.devices.groups()
    alone = {name: measured(groups, each.records, TRAINERS) for name, each in solos.items()}
    shared = measured(groups, together.records, TRAINERS)
    moves = {key: took for each in solos.values() for key, took in each.moves.items()}
    predicted = predict({name: each.records for name, each in solos.items()}, groups, moves, "fifo").result
    dedicated, serial, sliced, foreseen = rows(alone, shared, predicted, TRAINERS)
    assert (dedicated.devices, serial.devices, sliced.devices, foreseen.devices) == (6, 2, 2, 2)
    assert dedicated.run_s == max(each.run_s for each in alone.values())
    assert serial.run_s == pytest.approx(sum(each.run_s for each in alone.values()))
    assert foreseen.run_s >= predicted.lower_bound_s
    assert sliced.wait_median_s is not None
    assert 0 < sliced.trainer_duty <= 1


def plan_of(name: str) -> tuple[Phase, ...]:
    from examples.three_jobs.plan import plan

    return plan(job(name, "tiny"))
