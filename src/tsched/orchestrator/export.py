"""The decision log for whoever asks over the wire, in pieces that fit into messages; read in threads."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import anyio.to_thread

from tsched.journal.lines import sqlite_lines

PIECE_BYTES = 256 << 10


async def exported(log: Path) -> AsyncIterator[bytes]:
    """What is on disk now; a line may begin in one piece and end in another.

    Raises:
        Invalid, JournalError: as `sqlite_lines`.
    """
    lines = sqlite_lines(log)
    while (piece := await anyio.to_thread.run_sync(next, lines, b"")) != b"":
        for start in range(0, len(piece), PIECE_BYTES):
            yield piece[start : start + PIECE_BYTES]
