"""One server writes a log: a second one is told so before it reads a line of it.

The lock is the kernel's, on a file beside the log, so that it is gone with the process, however that ends.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tsched.errors import Invalid


@contextmanager
def only_writer(log: Path) -> Iterator[None]:
    """Hold the log for this process until the body ends.

    Raises:
        Invalid: another process holds it, or its folder cannot be written.
    """
    path = log.with_name(log.name + ".lock")
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Invalid(f"log {log}: {path} cannot be opened: {error.strerror}: name another with server.log") from None
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Invalid(f"log {log}: another server writes it: end that one, or name another log") from None
        yield
    finally:
        os.close(file)
