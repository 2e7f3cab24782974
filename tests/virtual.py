"""Runs an async function in virtual time, under asyncio or under trio."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio
import trio.testing

from tsched.testing.virtual_loop import run_virtual

T = TypeVar("T")

BACKENDS = ("asyncio", "trio")


def run(backend: str, main: Callable[[], Awaitable[T]]) -> T:
    if backend == "asyncio":
        return run_virtual(main)
    clock = trio.testing.MockClock(autojump_threshold=0)
    return anyio.run(main, backend="trio", backend_options={"clock": clock})


async def settle() -> None:
    """Let everything happen that needs no time."""
    await anyio.sleep(1e-6)
