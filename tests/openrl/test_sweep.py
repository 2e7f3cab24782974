"""The sweep against work that is being done at the same time, and after a crash."""

from __future__ import annotations

import threading
from pathlib import Path

from openrl.folders import publish
from openrl.service import Saved
from openrl.work import Result, SaveResult, SaveSampler, SaveState, Work
from tests.openrl.scripted_client import FB, ME, run, serving, until
from tests.openrl.scripted_worker import ScriptedWorker


class SlowWriter(ScriptedWorker):
    """Writes a checkpoint as the real worker does, and stops in the middle until it may go on."""

    def __init__(self) -> None:
        super().__init__()
        self.writing = threading.Event()
        self.go_on = threading.Event()

    def run(self, model_id: str, work: Work) -> Result | None:
        if not isinstance(work, SaveState | SaveSampler):
            return super().run(model_id, work)

        def write(unfinished: Path) -> None:
            (unfinished / "first").write_text("1")
            self.writing.set()
            assert self.go_on.wait(20)
            (unfinished / "second").write_text("2")

        return SaveResult(publish(Path(work.folder), write))


def test_a_checkpoint_that_is_being_written_is_left_alone(tmp_path: Path) -> None:
    async def main() -> None:
        worker = SlowWriter()
        async with serving(tmp_path, worker) as client:
            await client.begin()
            accepted = await client.service.requests.save_state(ME, client.model, 1, "one")
            await until(worker.writing.is_set)
            await client.service.sweep()
            worker.go_on.set()
            saved = await client.value(accepted)
            assert saved == Saved(f"tinker://{client.model}/weights/one", None, 2)

    run(main)


def test_what_a_crash_left_half_written_is_removed_at_the_start(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as client:
            await client.begin()
            await client.value(await client.submit(1, FB[1]))
        left = [tmp_path / "checkpoints" / ".0123.abcd", tmp_path / "states" / client.model / "7-0123"]
        for folder in left:
            folder.mkdir(parents=True)
        async with serving(tmp_path):
            await until(lambda: not any(folder.exists() for folder in left))

    run(main)
