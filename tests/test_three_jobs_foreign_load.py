"""Our own work is not foreign, however deep in the family; somebody else's is."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import time

from examples.three_jobs.foreign_load import Load, LoadMeter, own_s

BUSY = "import time\nend = time.process_time() + 0.6\nwhile time.process_time() < end: pass"


def burn() -> None:
    end = time.process_time() + 0.6
    while time.process_time() < end:
        pass


def test_what_descendants_use_is_our_own_while_they_live_and_after() -> None:
    before = own_s()
    process = multiprocessing.get_context("forkserver").Process(target=burn)
    process.start()
    process.join()
    subprocess.run([sys.executable, "-c", BUSY], check=True)
    assert own_s() - before >= 1.1


def test_what_others_use_is_foreign() -> None:
    """A process whose parent has ended is not ours any more."""
    meter = LoadMeter()
    script = f"import os, subprocess, sys; subprocess.Popen([sys.executable, '-c', {BUSY!r}])"
    subprocess.run([sys.executable, "-c", script], check=True)
    deadline = time.monotonic() + 30
    while (load := meter.read()).foreign_s < 0.4 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert load.foreign_s >= 0.4
    assert 0 < load.share <= 1


def test_a_high_load_is_said_to_be_too_much() -> None:
    assert "too much to trust" in str(Load(10.0, 0.2))
    assert "too much" not in str(Load(0.1, 0.001))
