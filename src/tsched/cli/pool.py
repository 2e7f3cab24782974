"""Many independent computations on all cores, in order of their results, with a progress bar on stderr.

The first is done at once and tells whether it is worth starting processes for the others.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from typing import TypeVar

from tsched.cli.output import progress

T = TypeVar("T")
R = TypeVar("R")

WORTH_IT_S = 2.0


def spread(title: str, work: Callable[[T], R], items: Sequence[T], *, workers: int | None = None) -> list[R]:
    """`[work(item) for item in items]`, on as many processes as there are cores where that pays.

    `work` must be a function of a module, and what it takes and gives must be picklable. What it raises is raised here.
    """
    if not items:
        return []
    cores = workers or len(os.sched_getaffinity(0))
    with progress(title, len(items)) as step:
        began = time.monotonic()
        first = work(items[0])
        step()
        rest = items[1:]
        if cores < 2 or len(rest) < 2 or (time.monotonic() - began) * len(rest) < WORTH_IT_S:
            return [first, *(_stepped(work, item, step) for item in rest)]
        return [first, *_in_processes(work, rest, min(cores, len(rest)), step)]


def _stepped(work: Callable[[T], R], item: T, step: Callable[[], None]) -> R:
    done = work(item)
    step()
    return done


def _in_processes(work: Callable[[T], R], items: Sequence[T], workers: int, step: Callable[[], None]) -> list[R]:
    # spawn: a forked child would inherit the locks of the progress bar's thread
    spawn = multiprocessing.get_context("spawn")
    others = multiprocessing.active_children()
    pool = ProcessPoolExecutor(workers, mp_context=spawn, initializer=_leave_interrupts_to_the_parent)
    try:
        futures = [pool.submit(work, item) for item in items]
        pending: set[Future[R]] = set(futures)
        while pending:
            done, pending = wait(pending, return_when=FIRST_COMPLETED)
            for future in done:
                future.result()
                step()
        return [future.result() for future in futures]
    except BaseException:  # an interrupt too: whatever is still being worked on is of no use
        for process in multiprocessing.active_children():
            if process not in others:
                process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _leave_interrupts_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
